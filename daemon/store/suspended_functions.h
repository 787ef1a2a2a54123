#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// A function that the overhead budget had suspended, for the next start: it begins in windows then,
// before it costs anything.
struct SuspendedFunction {
  std::string category;
  std::string function;
  std::string comm;  // of the process in which it cost too much
  double share_ratio = 0;
  uint32_t times = 0;
  bool operator==(const SuspendedFunction&) const = default;
};

// The longest list that is read or written; the configuration may have more functions.
inline constexpr size_t kSuspendedFunctionsMax = 1'000;

// The file's list, in place of the one that was there. Thread: any.
Status write_suspended_functions(const std::string& path,
                                 const std::vector<SuspendedFunction>& functions);
// NotFound; InvalidArgument: it is damaged, which costs what a first start costs.
Result<std::vector<SuspendedFunction>> read_suspended_functions(const std::string& path);

}  // namespace gpuperf
