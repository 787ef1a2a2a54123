#pragma once

#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/rpc/row_filter.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Operators of processes that match, those that run first; of one process most time first.
std::vector<v1::StepOperator> list_step_operators(const Snapshot& snapshot,
                                                  const RowFilter& filter);

// Their layers that are mixtures of experts.
std::vector<v1::ExpertLayer> list_step_experts(const Snapshot& snapshot, const RowFilter& filter);

}  // namespace gpuperf
