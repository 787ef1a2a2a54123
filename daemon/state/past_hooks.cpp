#include "daemon/state/past_hooks.h"

#include <algorithm>
#include <utility>

namespace gpuperf {

void PastHooks::apply(const CellDelta& delta, bool is_launch) {
  loop_thread_.check();
  if (!is_launch || delta.process.pid == 0) return;  // those of pid 0 are of many processes
  const uint64_t probed = delta.calls - std::min(delta.calls, delta.hooked);
  if (delta.hooked == 0 && !processes_.contains(delta.process)) return;
  Window& window = processes_[delta.process].now;
  if (delta.hooked > 0) window.is_hooked = true;
  if (probed > 0) window.probed[delta.function_id] += probed;
}

std::vector<PastHooks::Found> PastHooks::end_window() {
  loop_thread_.check();
  std::vector<Found> found;
  for (auto& [process, state] : processes_) {
    if (state.was_hooked && state.last.is_hooked && state.now.is_hooked) {
      for (const auto& [function_id, calls] : state.last.probed) {
        found.push_back({process, function_id, calls});
      }
    }
    state.was_hooked = state.last.is_hooked;
    state.last = std::exchange(state.now, {});
  }
  std::erase_if(processes_, [](const auto& entry) {
    return !entry.second.was_hooked && !entry.second.last.is_hooked;
  });
  return found;
}

}  // namespace gpuperf
