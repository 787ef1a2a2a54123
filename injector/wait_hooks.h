#pragma once

// Hooks on the driver functions in which a thread waits for the GPU: they time the call while calls
// are logged (call_log.h).
//
// Installed with the launch hooks, in the same way. Each calls the driver's function through its
// first instruction, so probes on it see and count the call as before: the hook only notes when it
// was.

#include <cstddef>
#include <span>

#include "injector/pointer_patch.h"

namespace gpuperf::injector {

constexpr size_t kWaitHooksMax = 8;

// Writes the replacements for this driver. Returns how many; at most kWaitHooksMax.
size_t list_wait_hooks(void* driver, std::span<PointerReplacement> replacements);

}  // namespace gpuperf::injector
