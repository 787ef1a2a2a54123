#include "daemon/rpc/frame_guard.h"

#include <algorithm>
#include <utility>

namespace gpuperf {
namespace {

using Frame = Http2Frame;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// In units of the work per second: a thousand calls, or two hundred that are given up at once,
// because gRPC goes on with those for a while.
constexpr uint64_t kCallWork = 20;
constexpr uint64_t kResetWork = 80;
constexpr uint64_t kSettingsWork = 20;  // each may touch every open call
// Of a ping that no data has led to: gRPC 1.51 keeps 3 KB for each until it has closed a connection
// with too many.
constexpr uint64_t kPingWork = 200;
constexpr uint64_t kFrameWork = 1;
// Clients measure their line by a ping for each answer of theirs, a few at once.
constexpr uint32_t kMaxPingsEarned = 16;

}  // namespace

FrameGuard::~FrameGuard() {
  while (!calls_.empty()) end_call(calls_.begin()->first);
}

size_t FrameGuard::admit(std::span<const char> from_client, int64_t now_mono_ns) {
  std::span<const char> rest = from_client;
  breach_ = check_preface(rest);
  while (breach_.empty() && ready_mono_ns() <= now_mono_ns) {
    const std::optional<Frame> frame = from_client_.next(rest);
    if (!frame) break;
    breach_ = check(*frame);
    budget_->work.take(take_work(*frame), now_mono_ns);
  }
  return from_client.size() - rest.size();
}

uint64_t FrameGuard::take_work(const Frame& frame) {
  switch (frame.type) {
    case Frame::kHeaders:
      return kCallWork;
    case Frame::kReset:
      return kResetWork;
    case Frame::kSettings:
      return kSettingsWork;
    case Frame::kPing:
      if ((frame.flags & Frame::kAck) != 0) return kFrameWork;
      if (pings_earned_ == 0) return kPingWork;
      --pings_earned_;
      return kFrameWork;
    default:  // an open set
      return kFrameWork;
  }
}

std::string_view FrameGuard::check_preface(std::span<const char>& bytes) {
  const size_t count = std::min(kPreface.size() - preface_bytes_, bytes.size());
  const std::string_view seen(bytes.data(), count);
  if (seen != kPreface.substr(preface_bytes_, count)) return "not HTTP/2";
  preface_bytes_ += count;
  bytes = bytes.subspan(count);
  return {};
}

std::string_view FrameGuard::check(const Frame& frame) {
  if (frame.payload_bytes > kMaxFrameBytes) return "frame too large";
  const uint32_t goes_on = frame.type == Frame::kContinuation ? frame.stream : 0;
  if (goes_on != header_stream_) return "headers not contiguous";
  switch (frame.type) {
    case Frame::kHeaders:
      if (frame.stream % 2 == 0) return "not a client's stream";
      header_bytes_ = 0;
      if (const auto breach = open_call(frame.stream); !breach.empty()) return breach;
      return check_header_block(frame);
    case Frame::kContinuation:
      return check_header_block(frame);
    case Frame::kData:
      return add_request_bytes(frame.stream, frame.payload_bytes);
    case Frame::kReset:
      end_call(frame.stream);
      return {};
    case Frame::kSettings:
      return frame.payload_bytes > kMaxSettingsBytes ? "too many settings" : "";
    case Frame::kPushPromise:
      return "push from a client";
    default:  // an open set; the rest costs work and nothing else
      return {};
  }
}

std::string_view FrameGuard::check_header_block(const Frame& frame) {
  header_bytes_ += frame.payload_bytes;
  header_stream_ = (frame.flags & Frame::kEndHeaders) != 0 ? 0 : frame.stream;
  return header_bytes_ > kMaxHeaderBytes ? "headers too large" : "";
}

std::string_view FrameGuard::open_call(uint32_t stream) {
  if (stream <= last_call_) return {};  // trailers, or of a call that has ended meanwhile
  last_call_ = stream;
  if (calls_.size() >= kMaxOpenCalls) return "too many calls on a connection";
  if (budget_->open_calls >= PeerBudget::kMaxOpenCalls) return "too many calls of a user";
  calls_.emplace(stream, 0);
  ++budget_->open_calls;
  return {};
}

std::string_view FrameGuard::add_request_bytes(uint32_t stream, size_t count) {
  const auto call = calls_.find(stream);
  if (call == calls_.end()) return {};  // it has ended: gRPC passes over the rest
  call->second += count;
  budget_->request_bytes += count;
  return budget_->request_bytes > PeerBudget::kMaxRequestBytes ? "requests too large" : "";
}

void FrameGuard::end_call(uint32_t stream) {
  const auto call = calls_.find(stream);
  if (call == calls_.end()) return;
  --budget_->open_calls;
  budget_->request_bytes -= call->second;
  calls_.erase(call);
}

void FrameGuard::note_answer(std::span<const char> from_server) {
  while (const std::optional<Frame> frame = from_server_.next(from_server)) {
    if (frame->type == Frame::kData) pings_earned_ = std::min(pings_earned_ + 1, kMaxPingsEarned);
    const bool may_end = frame->type == Frame::kData || frame->type == Frame::kHeaders;
    const bool ends = may_end && (frame->flags & Frame::kEndStream) != 0;
    if (ends || frame->type == Frame::kReset) end_call(frame->stream);
  }
}

}  // namespace gpuperf
