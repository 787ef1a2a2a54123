#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/rpc/http2_frames.h"

namespace gpuperf::testing {

inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// A frame's header alone.
inline std::string make_frame_header(const Http2Frame& frame) {
  std::string text;
  for (const int shift : {16, 8, 0}) text += static_cast<char>(frame.payload_bytes >> shift);
  text += static_cast<char>(frame.type);
  text += static_cast<char>(frame.flags);
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(frame.stream >> shift);
  return text;
}

inline std::string make_frame(uint8_t type, uint8_t flags, uint32_t stream,
                              const std::string& payload = "") {
  return make_frame_header({.payload_bytes = static_cast<uint32_t>(payload.size()),
                            .type = type,
                            .flags = flags,
                            .stream = stream}) +
         payload;
}

}  // namespace gpuperf::testing
