#pragma once

// The functions of the driver by which graphs come to be, seen before they do their work.
//
// Installed with the launch hooks and by the same means (launch_hooks.h). Each calls the driver's
// function through its first instruction, so that probes on it see the call as before. They are
// rare calls, and nothing is counted here.

#include <cstddef>
#include <span>

#include "injector/note_points.h"
#include "injector/pointer_patch.h"

namespace gpuperf::injector {

constexpr size_t kGraphHooksMax = 24;

// What has these calls told, on their threads. `begins`: a graph is made of nothing; else there is
// one already. Before install_launch_hooks().
using OnGraph = void (*)(bool begins);
void set_graph_watcher(OnGraph on_graph);

// Whether a stream of this process is being captured, as far as was seen. Any thread.
inline bool is_capture_open() {
  return gpuperf_hook_flags.open_captures.load(std::memory_order_relaxed) > 0;
}

// Writes what is to be replaced for this driver. Returns how many; at most kGraphHooksMax.
size_t list_graph_hooks(void* driver, std::span<PointerReplacement> replacements);

}  // namespace gpuperf::injector
