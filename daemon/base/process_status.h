#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// The value of the line "KEY:" in the text of /proc/PID/status; empty where there is no such line.
// The name of a process cannot hold a line break there: the kernel writes it as "\n".
std::string_view find_status_field(std::string_view status, std::string_view key);

// The decimal numbers that value begins with.
std::vector<uint32_t> list_status_numbers(std::string_view status, std::string_view key);

// `folder`: "/proc/71", or "/proc/71/task/72" for a thread. NotFound when it is gone.
Result<std::string> read_status_text(const std::string& folder);

// Whether the calling thread's process has it in effect: CAP_SYS_PTRACE and the like.
bool has_own_capability(int capability);

// A process or thread as it sees itself.
struct InnerId {
  uint32_t id = 0;  // in its own, the innermost, pid namespace
  bool is_namespace_ours = true;
};

// `id` where the text has no line NSpid (kernels before 4.1).
InnerId parse_inner_id(std::string_view status, uint32_t id);

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

// As read_status_text().
Result<ProcessStatus> read_process_status(const std::string& folder);

}  // namespace gpuperf
