#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/model/trace_event.h"
#include "daemon/rpc/row_filter.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf {

// The sessions that match, open ones first, newest first. What a process did beside kernels is with
// its newest session.
std::vector<v1::Session> list_sessions(const Snapshot& snapshot, const RowFilter& filter,
                                       bool include_closed, int64_t now_mono_ns);

// Processes that called probed functions, and those that have a session, running ones first.
std::vector<ProcessRow> list_processes(const Snapshot& snapshot, const RowFilter& filter);
// State of each process's newest session, "closed" once it has ended.
std::map<ProcessKey, std::string_view, ProcessOrder> get_session_states(const GpuReport& report);

}  // namespace gpuperf
