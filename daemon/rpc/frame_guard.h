#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include "daemon/base/token_bucket.h"
#include "daemon/rpc/http2_frames.h"

namespace gpuperf {

// What all connections of one user may make gRPC do. Thread: the relay's.
struct PeerBudget {
  // In frames of the cheapest kind; frame_guard.cpp has what the others cost.
  static constexpr uint64_t kWorkPerSecond = 20'000;
  // Over all connections.
  static constexpr size_t kMaxOpenCalls = 256;
  // The largest request has 1 MiB: eight at once.
  static constexpr size_t kMaxRequestBytes = size_t{8} << 20;

  TokenBucket work{kWorkPerSecond};
  size_t open_calls = 0;
  size_t request_bytes = 0;  // that came for calls that are still open
};

// Decides what of a client's bytes gRPC gets to see. gRPC 1.51 bounds neither the headers of a call
// nor the calls that a client opens and gives up (decision 0023), so the frames' headers are
// checked in front of it. Contents are gRPC's to check.
//
// Thread: the relay's. The user's budget is shared by all guards of that user.
// Bounds: the constants below for a connection, PeerBudget for a user. Beyond what a frame or a
// connection may have, the connection is to be closed; beyond the work per second, its client
// waits.
class FrameGuard {
 public:
  static constexpr size_t kMaxFrameBytes = 16'384;   // what HTTP/2 lets a client assume
  static constexpr size_t kMaxHeaderBytes = 16'384;  // of one call; gRPC refuses beyond 8 KiB
  static constexpr size_t kMaxSettingsBytes = 192;   // 32 of them; there are seven
  // gRPC tells clients 64; before they know, HTTP/2 has them assume no fewer than 100.
  static constexpr size_t kMaxOpenCalls = 100;

  explicit FrameGuard(std::shared_ptr<PeerBudget> budget) : budget_(std::move(budget)) {}
  ~FrameGuard();
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

  // How many of the bytes may go on to gRPC now; the rest is to be given again, at the front, from
  // `ready_mono_ns` on.
  size_t admit(std::span<const char> from_client, int64_t now_mono_ns);
  int64_t ready_mono_ns() const { return budget_->work.ready_mono_ns(); }
  // Why the connection must be closed, and what was not admitted forgotten; empty = it need not.
  std::string_view breach() const { return breach_; }
  // What gRPC sent: tells which calls have ended.
  void note_answer(std::span<const char> from_server);

 private:
  // In units of the work per second.
  uint64_t take_work(const Http2Frame& frame);
  std::string_view check_preface(std::span<const char>& bytes);
  // What is wrong with a frame of the client's; empty = nothing. Takes the frame into account.
  std::string_view check(const Http2Frame& frame);
  std::string_view check_header_block(const Http2Frame& frame);
  std::string_view open_call(uint32_t stream);
  std::string_view add_request_bytes(uint32_t stream, size_t count);
  void end_call(uint32_t stream);

  const std::shared_ptr<PeerBudget> budget_;
  std::string_view breach_;
  Http2FrameReader from_client_;
  Http2FrameReader from_server_;
  size_t preface_bytes_ = 0;          // of the client's preface, seen
  uint32_t last_call_ = 0;            // the latest that was opened: their numbers only grow
  uint32_t header_stream_ = 0;        // whose headers go on in the next frame; 0 = none's
  uint32_t pings_earned_ = 0;         // by the answers the client got
  size_t header_bytes_ = 0;           // of that block
  std::map<uint32_t, size_t> calls_;  // open ones -> bytes of their requests
};

}  // namespace gpuperf
