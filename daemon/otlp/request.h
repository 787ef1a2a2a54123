#pragma once

#include <cstddef>
#include <string>

namespace gpuperf::otlp {

// One request, as it goes over the wire.
struct Request {
  std::string bytes;
  size_t items = 0;  // spans, data points, or profiles
};

// A request is closed when it has grown beyond: receivers take 4 MiB unless told otherwise, and one
// span or data point is far from the other half.
inline constexpr size_t kRequestBytes = 2 << 20;

}  // namespace gpuperf::otlp
