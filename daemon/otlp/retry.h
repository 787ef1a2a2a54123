#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace gpuperf::otlp {

struct RetryTimes {
  std::chrono::milliseconds first{1'000};
  std::chrono::milliseconds longest{30'000};
};

// How long to wait before a request that failed is sent again; nullopt = it is refused for good. By
// the table of the OTLP specification ("OTLP/gRPC response"): a pause that the server asks for is
// kept, and RESOURCE_EXHAUSTED is worth another try only with one. Else the pause doubles with each
// of `failures` (1 = the first) and is spread by `spread` (0 to 1) over its upper half, so that
// hosts do not come back all at once.
std::optional<std::chrono::milliseconds> find_retry_delay(const grpc::Status& status,
                                                          uint32_t failures, double spread,
                                                          const RetryTimes& times);

}  // namespace gpuperf::otlp
