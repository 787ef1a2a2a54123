#pragma once

#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/rpc/row_filter.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf {

// The function of a row; null where its id is outside the snapshot's own table, which has no name
// for it then.
const Function* find_function(const Snapshot& snapshot, uint32_t function_id);

// Whether rows come with FunctionStats.buckets.
enum class WithBuckets { kNo, kYes };

// One row per function and process that match, in the snapshot's order.
std::vector<v1::FunctionStats> list_per_process(const Snapshot& snapshot, const RowFilter& filter,
                                                WithBuckets with_buckets);

// One row per function, summed over the processes that match, by function id. Processes that were
// forgotten since still count, unless the filter names a pid: then only rows still kept can match.
std::vector<v1::FunctionStats> list_summed(const Snapshot& snapshot, const RowFilter& filter,
                                           WithBuckets with_buckets);

// Sorts by a numeric field, descending, or by "function", ascending. INVALID_ARGUMENT names the
// fields there are.
Status sort_functions(std::string_view field_name, std::vector<v1::FunctionStats>& functions);

}  // namespace gpuperf
