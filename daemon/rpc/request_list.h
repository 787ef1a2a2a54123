#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/model/snapshot.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Processes that answer requests, those that run first, most requests per second first.
std::vector<v1::RequestProcess> list_request_processes(const Snapshot& snapshot,
                                                       const v1::Filter& filter);

// Their requests that are kept, newest first; with `slow_only` the slow ones, longest wait first.
std::vector<v1::Request> list_requests(const Snapshot& snapshot, const Clock& clock,
                                       const v1::Filter& filter, bool slow_only);

// Kept requests whose longest wait had this step as its longest.
uint32_t count_held_up(const Snapshot& snapshot, uint64_t step_id);

}  // namespace gpuperf
