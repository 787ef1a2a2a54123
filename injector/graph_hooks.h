#pragma once

// Hooks on the driver functions that create graphs; they run before the function does its work.
//
// Installed with the launch hooks, in the same way (launch_hooks.h). Each calls the driver's
// function through its first instruction, so probes on it see the call as before. These calls are
// rare, and nothing is counted here.

#include <cstddef>
#include <span>

#include "injector/note_points.h"
#include "injector/pointer_patch.h"

namespace gpuperf::injector {

constexpr size_t kGraphHooksMax = 24;

// Called for each of these calls, on its thread. `begins`: the call creates a graph from nothing;
// otherwise a graph already exists. Set it before install_launch_hooks().
using OnGraph = void (*)(bool begins);
void set_graph_watcher(OnGraph on_graph);

// Whether a stream of this process is being captured, as far as the hooks saw. Thread: any.
inline bool is_capture_open() {
  return gpuperf_hook_flags.open_captures.load(std::memory_order_relaxed) > 0;
}

// Writes the replacements for this driver. Returns how many; at most kGraphHooksMax.
size_t list_graph_hooks(void* driver, std::span<PointerReplacement> replacements);

}  // namespace gpuperf::injector
