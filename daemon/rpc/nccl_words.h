#pragma once

// What is found about a communicator of NCCL, in words.

#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/nccl_verdict.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// What a rank is found in, for people: "sleeping", "stopped by its CPU quota".
std::string_view get_nccl_cause_words(std::string_view cause);

// Name of a probed function; empty where it is none.
std::string get_nccl_call_name(const Snapshot& snapshot, uint32_t function_id);

// One sentence or two: who is waited for, how long, why.
std::string describe_nccl(const Snapshot& snapshot, const NcclCommunicatorRow& communicator,
                          const NcclVerdict& verdict);

// What speaks for it, and what to look at next.
std::vector<std::string> list_nccl_evidence(const Snapshot& snapshot,
                                            const NcclCommunicatorRow& communicator,
                                            const NcclVerdict& verdict, int64_t now_mono_ns);

// The GPU that the sessions of a process use; null = none, or several.
const GpuActivity* find_nccl_gpu(const Snapshot& snapshot, const ProcessKey& process);
// The outermost probed call that the thread is in; null = none was found.
const InFlightCall* find_nccl_call(const Snapshot& snapshot, const NcclRankRow& rank);

}  // namespace gpuperf
