#pragma once

#include <string_view>

#include "daemon/base/listen_address.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Where a server is reached over gRPC.
struct Endpoint {
  bool is_encrypted = false;  // https
  HostPort address;
  bool operator==(const Endpoint&) const = default;
};

// Reads "http://collector:4317", "https://[::1]:4317" and "https://collector", whose port is
// 4317, that of OTLP over gRPC. A path is refused: gRPC has none, so whoever gives one means
// another protocol.
Result<Endpoint> parse_endpoint(std::string_view text);

}  // namespace gpuperf
