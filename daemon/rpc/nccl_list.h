#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/rpc/row_filter.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf {

// Communicators with a rank that matches: those in which a rank is waited for first, then in order
// of creation.
std::vector<v1::NcclCommunicator> list_nccl(const Snapshot& snapshot, const RowFilter& filter,
                                            int64_t now_mono_ns);

}  // namespace gpuperf
