#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/result.h"

namespace gpuperf {

// What may keep this process from memory; ~0 = nothing does.
struct MemoryLimits {
  uint64_t group_bytes = ~uint64_t{0};    // least of its control groups and those above
  std::string group;                      // which one, as in /proc/self/cgroup
  uint64_t address_bytes = ~uint64_t{0};  // RLIMIT_AS

  bool operator==(const MemoryLimits&) const = default;
};

// `proc_root` and `cgroup_root`: "/proc" and "/sys/fs/cgroup", or trees made by a test.
MemoryLimits read_memory_limits(const std::string& proc_root, const std::string& cgroup_root);

// ResourceExhausted where the daemon would be killed or abort while it starts: says which limit is
// too low and how much is needed (kStartBytes, kStartAddressBytes).
Status check_memory_limits(const MemoryLimits& limits);

// From now on an allocation that fails anywhere ends the process with one line on standard error
// and exit code 1. Once, before other threads.
void report_failed_allocations();

}  // namespace gpuperf
