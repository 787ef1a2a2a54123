#pragma once

#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/rpc/row_filter.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf {

// One row per function and shape, summed over the processes that match, sorted by "flops" (also
// when empty), "calls" or "total_ns", descending. INVALID_ARGUMENT: any other field. Shapes of
// processes that were forgotten since belong to no process: a filter by pid, container or pod
// leaves them out.
Result<std::vector<v1::Shape>> list_shapes(const Snapshot& snapshot, const RowFilter& filter,
                                           std::string_view sort);

}  // namespace gpuperf
