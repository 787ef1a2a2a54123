#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "daemon/base/result.h"

namespace gpuperf {

// The codes of absl::Status are those of gRPC.
inline grpc::Status to_grpc_status(const Status& status) {
  return {static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message())};
}

}  // namespace gpuperf
