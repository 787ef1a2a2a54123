#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/rpc/row_filter.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Processes with steps that match, those that run first, most steps per second first.
std::vector<v1::StepProcess> list_step_processes(const Snapshot& snapshot, const RowFilter& filter);

// The steps kept of processes that match: all, newest first, or the slow ones, longest first.
std::vector<v1::Step> list_steps(const Snapshot& snapshot, const Clock& clock,
                                 const v1::Filter& filter, bool slow_only);

// NOT_FOUND: never existed or no longer kept.
Status get_step(const Snapshot& snapshot, const Clock& clock, uint64_t id,
                v1::GetStepResponse& response);

}  // namespace gpuperf
