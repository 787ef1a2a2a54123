#pragma once

#include "daemon/collect/map_source.h"
#include "daemon/probe/programs.h"

namespace gpuperf {

// The kernel's totals of `programs`, which must outlive the answer.
CellStore make_cell_store(const Programs& programs);

// Whether the process runs: /proc knows its pid with that start time (to the 10 ms /proc tells).
bool is_alive(const ProcessKey& process);

}  // namespace gpuperf
