#pragma once

// Bounded readers of the text files under /proc. `proc_root` is "/proc", or a tree made by a test.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

struct BoundedText {
  std::string text;
  bool truncated = false;  // there was more than `max_bytes`
};

// Reads at most `max_bytes` of a file. NotFound when the file, or the process behind it, is gone.
Result<BoundedText> read_bounded_text(const std::string& path, size_t max_bytes);

// "/proc/71/maps".
std::string get_proc_path(std::string_view proc_root, uint32_t pid, std::string_view name);

// Every process of `proc_root`, ascending.
Result<std::vector<uint32_t>> list_pids(const std::string& proc_root);

// When the process started, by CLOCK_BOOTTIME, in clock ticks (10 ms); field 22 of /proc/PID/stat.
Result<uint64_t> read_start_ticks(std::string_view proc_root, uint32_t pid);

// Where the arguments of the process's program begin on its stack, random for each program run;
// field 28 of /proc/PID/stat. 0 = not told: no right to ptrace the process.
Result<uint64_t> read_start_stack(std::string_view proc_root, uint32_t pid);

// Where the process's environment is in its memory; fields 50 and 51 of /proc/PID/stat. Both 0 =
// not told: no right to ptrace the process, or a kernel thread.
struct EnvironmentPlace {
  uint64_t begin = 0;
  uint64_t end = 0;
};
Result<EnvironmentPlace> read_environment_place(std::string_view proc_root, uint32_t pid);

// The session it is in, setsid(2), as the pid namespace of `proc_root` numbers it; field 6 of
// /proc/PID/stat.
Result<uint64_t> read_session(std::string_view proc_root, uint32_t pid);

// 'R' = it runs or waits for a CPU, 'D' = it waits in the kernel, 'Z' = it has ended; field 3 of
// /proc/PID/stat.
Result<char> read_process_state(std::string_view proc_root, uint32_t pid);

// True when the process of that pid is the one that started at `start_boot_ns`, to the tick;
// 0 = any. False when there is none or it cannot be told.
bool is_running_since(std::string_view proc_root, uint32_t pid, uint64_t start_boot_ns);

}  // namespace gpuperf
