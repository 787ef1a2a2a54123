#pragma once

// Which Slurm job a process belongs to, from its environment.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuperf {

struct SlurmTask {
  std::string job;   // SLURM_JOB_ID; empty = not in a job
  std::string rank;  // SLURM_PROCID; empty = not a task of a job step
  bool operator==(const SlurmTask&) const = default;
};

// An environment is at most some 128 KiB in practice; the kernel's bound is 6 MiB with arguments.
inline constexpr size_t kMaxEnvironmentBytes = size_t{128} << 10;

// Of the text of /proc/PID/environ. A process may write anything there: a value longer than 64
// bytes or with other characters than letters, digits, '_', '-' and '.' counts as absent. Nothing
// else is looked at or kept.
SlurmTask parse_slurm_task(std::string_view environment);

}  // namespace gpuperf
