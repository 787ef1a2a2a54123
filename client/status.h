#pragma once

// How every fallible call of the client answers, and which exit code that becomes.

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace gpuperf::client {

using Status = absl::Status;
template <typename T>
using Result = absl::StatusOr<T>;

// The contract with scripts; docs/gpuperfctl.md lists them.
enum class ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kUnreachable = 3, kNotPermitted = 4 };

// kCancelled is the quiet end: the user interrupted a watch, or the reader of our output left.
ExitCode find_exit_code(const Status& status);

}  // namespace gpuperf::client

#define CLIENT_CONCAT_INNER(a, b) a##b
#define CLIENT_CONCAT(a, b) CLIENT_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                             \
  do {                                                          \
    if (::absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                           \
    }                                                           \
  } while (false)

// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(CLIENT_CONCAT(result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return result.status();                     \
  declaration = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
