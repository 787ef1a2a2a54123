#pragma once

#include "daemon/probe/attach/programs.h"
#include "daemon/unwind/address_spaces.h"

namespace gpuperf {

// So that the kernel side sends that stack again.
void forget_sent_stack(const Programs& programs, uint64_t raw_id);

// The BPF maps that walks of stacks go by. `programs` must outlive what uses it.
WalkTables make_walk_tables(const Programs& programs);

}  // namespace gpuperf
