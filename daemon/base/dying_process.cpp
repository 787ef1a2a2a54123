#include "daemon/base/dying_process.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <string>

#include "daemon/base/proc_text.h"
#include "daemon/base/process_status.h"

namespace gpuperf {
namespace {

// Of a line like "SigPnd:\t0000000000000100".
bool has_signal(std::string_view status, std::string_view key, int signal) {
  const std::string_view mask = find_status_field(status, key);
  uint64_t signals = 0;
  (void)std::from_chars(mask.data(), mask.data() + mask.size(), signals, 16);
  return (signals >> (signal - 1) & 1) != 0;
}

}  // namespace

bool is_dying(std::string_view proc_root, uint32_t pid) {
  const Result<char> state = read_process_state(proc_root, pid);
  if (state.ok() && (*state == 'Z' || *state == 'X')) return true;
  const std::string tasks = get_proc_path(proc_root, pid, "task");
  const Result<std::vector<uint32_t>> threads = list_pids(tasks);
  if (!threads.ok()) return false;
  return std::ranges::any_of(*threads, [&tasks](uint32_t thread) {
    const Result<std::string> status = read_status_text(tasks + "/" + std::to_string(thread));
    return status.ok() &&
           (has_signal(*status, "SigPnd", SIGKILL) || has_signal(*status, "ShdPnd", SIGKILL));
  });
}

}  // namespace gpuperf
