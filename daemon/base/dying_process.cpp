#include "daemon/base/dying_process.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <string>

#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

// Of a line like "SigPnd:\t0000000000000100".
bool has_signal(std::string_view status, std::string_view key, int signal) {
  const size_t at = status.find(key);
  if (at == std::string_view::npos) return false;
  status.remove_prefix(at + key.size());
  uint64_t signals = 0;
  (void)std::from_chars(status.data(), status.data() + status.size(), signals, 16);
  return (signals >> (signal - 1) & 1) != 0;
}

}  // namespace

bool is_dying(std::string_view proc_root, uint32_t pid) {
  constexpr size_t kMaxStatusBytes = size_t{64} << 10;
  const Result<char> state = read_process_state(proc_root, pid);
  if (state.ok() && (*state == 'Z' || *state == 'X')) return true;
  const std::string tasks = get_proc_path(proc_root, pid, "task");
  const Result<std::vector<uint32_t>> threads = list_pids(tasks);
  if (!threads.ok()) return false;
  return std::ranges::any_of(*threads, [&tasks](uint32_t thread) {
    const Result<BoundedText> status =
        read_bounded_text(get_proc_path(tasks, thread, "status"), kMaxStatusBytes);
    return status.ok() && (has_signal(status->text, "\nSigPnd:\t", SIGKILL) ||
                           has_signal(status->text, "\nShdPnd:\t", SIGKILL));
  });
}

}  // namespace gpuperf
