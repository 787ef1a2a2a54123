#pragma once

// The only place that turns the model into messages of gpuperf.v1.
//
// Pure functions, any thread. Text that comes from processes and files is made valid UTF-8 on the
// way: a message with one bad byte cannot be parsed by its reader at all.

#include "daemon/config.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// One function summed over processes: pid, comm and the owner stay empty.
v1::FunctionStats to_proto(const Function& function, const FunctionTotals& totals);
v1::FunctionStats to_proto(const Function& function, const FunctionRow& row);
v1::Process to_proto(const ProcessRow& row);
v1::Probe to_proto(const ProbeRow& row);
v1::SlowCall to_proto(const SlowCall& call);
v1::ConfigError to_proto(const ConfigError& error);
v1::GetStatusResponse to_proto(const Snapshot& snapshot, const DropCounters& drops);
v1::GetConfigResponse to_proto(const DaemonFacts& facts);

}  // namespace gpuperf
