#pragma once

// The driver's functions in which a thread waits for the GPU, timed where calls are logged
// (call_log.h).
//
// Installed with the launch hooks and by the same means. Each calls the driver's function through
// its first instruction, so that probes on it see the call as before, and count it: here is only
// noted when it was.

#include <cstddef>
#include <span>

#include "injector/pointer_patch.h"

namespace gpuperf::injector {

constexpr size_t kWaitHooksMax = 8;

// Writes what is to be replaced for this driver. Returns how many; at most kWaitHooksMax.
size_t list_wait_hooks(void* driver, std::span<PointerReplacement> replacements);

}  // namespace gpuperf::injector
