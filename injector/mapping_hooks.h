#pragma once

// Hooks on the driver functions that change what a process has on its GPUs beside giving them work:
// memory, modules, streams, contexts. They can be held back for a moment. Where a module is made of
// an image in memory, its address is noted (module_images.h).
//
// Why: PC sampling (pc_sampler.h) takes a lock of CUPTI and then one of the driver; these functions
// take them the other way round, and so do launches (launch_gate.h). Measured on an H200 (CUPTI
// 13.0, driver 580): begun or ended while another thread launched, copied, allocated or freed, it
// hung the process within seconds, 7 times out of 7; with both held back, never in some 360 times
// for each of 19 kinds of calls. Calls that only wait for the GPU, query or record events are
// harmless. docs/decisions/0029-pc-sampling.md.
//
// Installed with the launch hooks, in the same way. A call pays for two additions to a shared word.

#include <cstddef>
#include <cstdint>
#include <span>

#include "injector/pointer_patch.h"

namespace gpuperf::injector {

constexpr size_t kMappingHooksMax = 72;

// Writes the replacements for this driver. Returns how many; at most kMappingHooksMax.
size_t list_mapping_hooks(void* driver, std::span<PointerReplacement> replacements);

// Waits until no such call is in the driver, for at most `patience_ms`, and makes new ones wait for
// release_mapping_calls(), for at most `held_ms_max`; then they go on. False: calls were there all
// the time, and none waits. Calls of this thread pass. Thread: any, one at a time.
bool hold_mapping_calls(uint64_t patience_ms, uint64_t held_ms_max);
void release_mapping_calls();

}  // namespace gpuperf::injector
