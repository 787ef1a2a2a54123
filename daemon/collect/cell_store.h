#pragma once

#include "daemon/collect/map_source.h"
#include "daemon/probe/attach/programs.h"

namespace gpuperf {

// The kernel's totals of `programs`, which must outlive the answer.
CellStore make_cell_store(Programs& programs);

}  // namespace gpuperf
