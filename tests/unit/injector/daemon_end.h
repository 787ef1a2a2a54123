#pragma once

// The daemon's end of one session, in the test's own thread: a socket that takes and sends
// messages.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "injector/daemon_link.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

constexpr uint64_t kNowMs = 1'000;

class DaemonEnd {
 public:
  DaemonEnd();
  ~DaemonEnd();
  DaemonEnd(const DaemonEnd&) = delete;
  DaemonEnd& operator=(const DaemonEnd&) = delete;

  const char* path() const { return path_.c_str(); }
  // Takes the connection that waits.
  void accept();
  void close();
  // The next message that has come; empty = none.
  std::vector<uint8_t> take();
  void send(const void* message, size_t length_bytes);
  void welcome(uint32_t batch_bytes_max = GPUPERF_MESSAGE_BYTES_MAX);
  // Connects the link, takes its hello and welcomes it: whether they are together.
  bool come_together(DaemonLink& link, uint64_t now_ms);

 private:
  std::string folder_;
  std::string path_;
  int listener_ = -1;
  int connection_ = -1;
  uint32_t sequence_ = 0;
};

// The bytes at `offset` as what they are.
template <typename Struct>
Struct read_as(const std::vector<uint8_t>& bytes, size_t offset = 0) {
  Struct value = {};
  if (offset + sizeof(value) <= bytes.size())
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

}  // namespace gpuperf::injector
