#pragma once

#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/rpc/row_filter.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf {

// One row per kernel and process that match, or one per kernel, summed over the processes that
// match. Sums count processes that were forgotten since, unless the filter names a pid.
// `share_ratio` is that of the rows that match. Sorted by a numeric field, descending, or by
// "kernel", ascending; empty = total_ns. INVALID_ARGUMENT names the fields there are.
Result<std::vector<v1::KernelStats>> list_kernels(const Snapshot& snapshot, const RowFilter& filter,
                                                  std::string_view sort, bool per_process);

}  // namespace gpuperf
