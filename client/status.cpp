#include "client/status.h"

namespace gpuperf::client {

ExitCode find_exit_code(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kNotPermitted;
    default:  // absl's codes are an open set: whatever else went wrong is a plain failure
      return ExitCode::kFailed;
  }
}

}  // namespace gpuperf::client
