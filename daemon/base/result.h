#pragma once

// Status and Result<T>: how every fallible call answers. An error's text names the object, then the
// action, then the cause ("libcudart.so.12: attach cudaMalloc: no such symbol").

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string_view>

namespace gpuperf {

using Status = absl::Status;
template <typename T>
using Result = absl::StatusOr<T>;

// "what: <text of error_number>" with the code that fits the errno.
Status errno_status(int error_number, std::string_view what);

}  // namespace gpuperf

#define GPUPERF_CONCAT_INNER(a, b) a##b
#define GPUPERF_CONCAT(a, b) GPUPERF_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                \
  do {                                                             \
    if (::gpuperf::Status status_ = (expression); !status_.ok()) { \
      return status_;                                              \
    }                                                              \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(GPUPERF_CONCAT(result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return result.status();                     \
  declaration = std::move(result).value()
