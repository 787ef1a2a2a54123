#include "daemon/rpc/http2_frames.h"

#include <algorithm>

namespace gpuperf {

std::optional<Http2Frame> Http2FrameReader::next(std::span<const char>& bytes) {
  const size_t skipped = std::min<size_t>(payload_left_bytes_, bytes.size());
  payload_left_bytes_ -= static_cast<uint32_t>(skipped);
  bytes = bytes.subspan(skipped);
  const size_t taken = std::min(header_.size() - header_bytes_, bytes.size());
  std::copy_n(bytes.begin(), taken, header_.begin() + header_bytes_);
  header_bytes_ += taken;
  bytes = bytes.subspan(taken);
  if (header_bytes_ < header_.size()) return std::nullopt;
  header_bytes_ = 0;
  const auto& h = header_;
  const Http2Frame frame = {
      .payload_bytes = uint32_t{h[0]} << 16 | uint32_t{h[1]} << 8 | h[2],
      .type = h[3],
      .flags = h[4],
      .stream =
          (uint32_t{h[5]} << 24 | uint32_t{h[6]} << 16 | uint32_t{h[7]} << 8 | h[8]) & 0x7fff'ffff};
  payload_left_bytes_ = frame.payload_bytes;
  return frame;
}

}  // namespace gpuperf
