#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/call_path.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// What was added up along one path.
struct PathWeight {
  uint32_t path = 0;                // of the table
  uint32_t gpu_frame = kNoIndex;    // a frame of the table behind it; kNoIndex = none
  uint32_t stall_frame = kNoIndex;  // likewise, behind that
  uint64_t weight_ns = 0;
  uint64_t count = 0;  // pieces of GPU work, or calls
};

// By ViewWeight; one row per path, GPU frame and stall frame, in order of first use. Their sum is
// exactly that of the capture's records: of the work, of the time that threads were in calls, or of
// the time that GPUs were idle.
std::vector<PathWeight> weigh_paths(const Capture& capture, const ViewOptions& options,
                                    PathTable& table);

// False for a graph's record where the nodes of the same launch are known, too: its time is theirs.
// One per piece of work.
std::vector<bool> find_counted_work(const Capture& capture);

}  // namespace gpuperf
