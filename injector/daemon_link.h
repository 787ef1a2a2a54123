#pragma once

// The connection to the daemon. Injector's thread, except for what InitializeInjection does before
// that thread exists.
//
// Never blocks: what the socket does not accept waits in a bounded queue; what does not fit there
// is refused to the caller, who counts it. The daemon may be absent, stopped or dead: the link
// retries quietly, at growing intervals.
//
// A process that was attached to has no path to the daemon's socket. There the first connection
// comes from the attach worker; to later daemons the link offers one end of a pair in the block
// that they can read (attach_abi.h).

#include <cstddef>
#include <cstdint>

#include "injector/attach_abi.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

class DaemonLink {
 public:
  // Limits how much a daemon that does not read makes this process hold: half a second at 200,000
  // kernels a second.
  static constexpr size_t kQueueBytes = 8 << 20;
  static constexpr uint64_t kRetryFirstMs = 500;
  static constexpr uint64_t kRetryLastMs = 15'000;
  static constexpr uint64_t kAnswerMs = 5'000;
  // An offered connection is replaced after this: a daemon that took it may have died of it.
  static constexpr uint64_t kOfferMs = 15'000;

  enum class State { kApart, kWaiting, kTogether };

  // Copies `path`, the daemon's socket.
  void set_up(const char* path);
  // Instead: `block` names the connection, and gets those offered later.
  void set_up_attached(gpuperf_attach_block* block);

  State state() const { return state_; }
  int fd() const { return fd_; }  // -1 = not connected
  bool has_room(size_t bytes) const { return kQueueBytes - queued_bytes_ >= bytes; }
  bool has_queued() const { return queued_bytes_ > 0; }
  uint32_t connections() const { return connections_; }
  // The daemon's current orders, from its WELCOME or its last CONTROL.
  const gpuperf_control& control() const { return control_; }
  // When the daemon last took a message.
  uint64_t last_taken_ms() const { return last_taken_ms_; }
  uint64_t next_try_ms() const { return next_try_ms_; }

  // Connects and sends HELLO when a retry is due. True: waiting for the daemon's answer.
  bool try_connect(uint64_t now_ms);
  // Reads what has arrived. True: there is a new control.
  bool receive(uint64_t now_ms);
  // Sends queued messages until the socket accepts no more.
  void send_queued(uint64_t now_ms);
  // Sets sequence and version in the header. False: no room, or not connected; nothing was kept.
  bool send(gpuperf_message* message, uint64_t now_ms);
  // In a forked child, for good: closes the descriptor and touches nothing else.
  void abandon_after_fork();
  void disconnect(uint64_t now_ms);
  // At detach: disconnects and offers nothing any more.
  void leave_block(uint64_t now_ms);

 private:
  int connect_to_path();
  int take_given();
  int offer();
  void withdraw_offer();
  bool send_hello();
  bool send_now(const void* bytes, size_t length_bytes, uint64_t now_ms);
  bool take_message(const uint8_t* bytes, size_t length_bytes, uint64_t now_ms);

  char path_[108] = "";
  gpuperf_attach_block* block_ = nullptr;  // null = connects to path_
  int offered_fd_ = -1;                    // the other end of fd_, until a daemon has answered
  int fd_ = -1;
  State state_ = State::kApart;
  uint32_t connections_ = 0;
  uint32_t sequence_ = 0;
  uint64_t next_try_ms_ = 0;
  uint64_t retry_ms_ = kRetryFirstMs;
  uint64_t hello_ms_ = 0;
  uint64_t last_taken_ms_ = 0;
  gpuperf_control control_ = {};
  // Ring of messages: length (4 bytes) and bytes, back to back.
  uint8_t* queue_ = nullptr;
  size_t queue_first_ = 0;
  size_t queued_bytes_ = 0;
};

}  // namespace gpuperf::injector
