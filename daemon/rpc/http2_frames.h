#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gpuperf {

// The header of an HTTP/2 frame (RFC 9113, section 4.1):
//
//   payload length, 3 bytes | type, 1 | flags, 1 | stream, 4 without its highest bit
//
// followed by the payload. All numbers are big endian.
struct Http2Frame {
  static constexpr size_t kHeaderBytes = 9;

  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kPriority = 2,
    kReset = 3,
    kSettings = 4,
    kPushPromise = 5,
    kPing = 6,
    kGoAway = 7,
    kWindowUpdate = 8,
    kContinuation = 9,
  };
  static constexpr uint8_t kEndStream = 1;   // flag of DATA and HEADERS
  static constexpr uint8_t kAck = 1;         // of SETTINGS and PING
  static constexpr uint8_t kEndHeaders = 4;  // of HEADERS and CONTINUATION

  uint32_t payload_bytes = 0;
  uint8_t type = 0;  // may be one that Type does not have
  uint8_t flags = 0;
  uint32_t stream = 0;  // 0 = the connection
};

// Finds the frames' headers in one side of a connection, which comes in pieces of any size.
class Http2FrameReader {
 public:
  // The next frame whose header is complete; its payload follows in `bytes`, which begins behind
  // what was read. nullopt: all of it was read, and there is none.
  std::optional<Http2Frame> next(std::span<const char>& bytes);

 private:
  uint32_t payload_left_bytes_ = 0;  // of the last frame
  size_t header_bytes_ = 0;          // of the next one, already in `header_`
  std::array<uint8_t, Http2Frame::kHeaderBytes> header_{};
};

}  // namespace gpuperf
