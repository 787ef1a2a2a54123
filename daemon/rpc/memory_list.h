#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/rpc/row_filter.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// The processes that match, running ones first, those with most live memory first.
std::vector<v1::ProcessMemory> list_memory(const Snapshot& snapshot, const RowFilter& filter,
                                           bool with_sites, bool only_leaks);
// Newest first.
std::vector<v1::OutOfMemory> list_out_of_memory(const Snapshot& snapshot, const RowFilter& filter);

}  // namespace gpuperf
