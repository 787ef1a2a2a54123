#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// What /proc/PID/status says of who a process is.
struct ProcessStatus {
  // Who started it: a set-user-id program does not change the real ids.
  uint32_t uid = 0;
  std::vector<uint32_t> groups;  // the real one first
  std::vector<uint32_t> pids;    // in each pid namespace it is in, outermost first
  bool operator==(const ProcessStatus&) const = default;
};

// DataLoss when `text` says no user or group.
Result<ProcessStatus> parse_process_status(std::string_view text);

// `folder`: "/proc/71". NotFound when the process is gone.
Result<ProcessStatus> read_process_status(const std::string& folder);

}  // namespace gpuperf
