#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bpf/records.h"
#include "daemon/model/stack.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {

// The rule of a frame at `pc`; `is_exact` as in NativeFrame. Of kind GPUPERF_UNWIND_UNKNOWN where
// there is none.
using FindRule = std::function<gpuperf_unwind_rule(uint64_t pc, bool is_exact)>;

// Walks on from the last of `frames`, whose bp is given, and adds what it finds, up to
// GPUPERF_STACK_FRAMES. By the same steps as the kernel side (bpf/unwind.h). `returns`: what probes
// have replaced, perhaps long ago in calls left by longjmp: asked only where there is no rule.
// Thread: any; reads and finds on the caller's.
StackEnd walk_stack(std::vector<NativeFrame>& frames, uint64_t bp, const FindRule& find_rule,
                    const ReadMemory& read, std::span<const ReplacedReturn> returns);

// The stack of a call in flight, its caller first; empty when its return address cannot be read. A
// call that ends meanwhile gives a wrong or short stack.
StackEnd walk_live_stack(std::vector<NativeFrame>& frames, const LiveStack& live,
                         const FindRule& find_rule, const ReadMemory& read);

}  // namespace gpuperf
