#pragma once

// The only place that turns the model into messages of gpuperf.v1.
//
// Pure functions, any thread. Text that comes from processes and files is made valid UTF-8 on the
// way: a message with one bad byte cannot be parsed by its reader at all.

#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/model/control_port.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "gpuperf/v1/control.pb.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// What a function's totals do not hold.
struct FunctionNow {
  double coverage = 1;
  uint64_t oldest_in_flight_ns = 0;  // 0 = none found
};

// One function summed over processes: pid, comm and the owner stay empty.
v1::FunctionStats to_proto(const Function& function, const FunctionTotals& totals,
                           const FunctionNow& now);
v1::FunctionStats to_proto(const Function& function, const FunctionRow& row,
                           const FunctionNow& now);
// `session_state`: empty = not injected.
v1::Process to_proto(const ProcessRow& row, const OverheadRow& overhead,
                     std::string_view session_state);
// Process, owner and time of `row` are not shown: it may be a sum.
v1::Shape to_proto(const Function& function, const ShapeRow& row);
v1::InFlightCall to_proto(const Function& function, const InFlightCall& call, const Owner& owner,
                          uint64_t age_ns);
// `adaptive_threshold_ns`: of its function; 0 = none.
v1::Probe to_proto(const ProbeRow& row, uint64_t adaptive_threshold_ns);
v1::SlowCall to_proto(const SlowCall& call);
v1::ConfigError to_proto(const ConfigError& error);
v1::GetStatusResponse to_proto(const Snapshot& snapshot, const DropCounters& drops,
                               int64_t now_mono_ns);
v1::GetConfigResponse to_proto(const DaemonFacts& facts);
v1::ProbeChange to_proto(const ProbeChange& change);
v1::Attachment to_proto(const AttachRow& row);
void add_frames(const std::vector<StackFrame>& stack,
                google::protobuf::RepeatedPtrField<v1::StackFrame>& frames);

}  // namespace gpuperf
