#pragma once

// What a thread of another process does at the moment, from /proc.

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/model/nccl_rows.h"

namespace gpuperf {

// One reading of a thread.
struct ThreadReading {
  int64_t mono_ns = 0;
  char state = 0;                 // as in /proc/PID/stat; 0 = it is gone
  uint32_t syscall = UINT32_MAX;  // it is in; UINT32_MAX = none, or not told
  uint64_t runnable_ns = 0;       // waited for a CPU so far
  uint64_t throttled_ns = 0;      // by the CPU quotas of its control groups so far
  bool operator==(const ThreadReading&) const = default;
};

// `before` is the reading before it of the same thread; mono_ns 0 = there is none.
NcclActivity judge_activity(const ThreadReading& before, const ThreadReading& now);

// Reads threads, in small files that do not wait for the process (ProcFiles).
//
// Thread: one. Not here: when to read.
class ThreadReader {
 public:
  explicit ThreadReader(std::string proc_root = "/proc", std::string cgroup_root = "/sys/fs/cgroup")
      : proc_root_(std::move(proc_root)), cgroup_root_(std::move(cgroup_root)) {}

  ThreadReading read(uint32_t pid, uint32_t tid, int64_t now_mono_ns) const;

 private:
  uint64_t read_throttled_ns(uint32_t pid) const;

  const std::string proc_root_;
  const std::string cgroup_root_;
};

}  // namespace gpuperf
