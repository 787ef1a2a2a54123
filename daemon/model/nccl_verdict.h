#pragma once

// Which rank the others wait for, and why.

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/model/nccl_rows.h"

namespace gpuperf {

struct NcclVerdict {
  bool is_stuck = false;
  size_t rank_index = 0;  // in the communicator's rows
  std::string cause;      // name of its activity; "gpu": its calls came in time
  double late_ratio = 0;  // as NcclLateness::get_share(); 1 of a stuck one
  uint64_t stuck_ns = 0;  // 0 = it is not
};
// Empty: no rank is waited for noticeably. Being stuck counts more than being late.
std::optional<NcclVerdict> judge_nccl(const NcclCommunicatorRow& communicator, int64_t now_mono_ns);

// "rank 3", "rank 3 of its job" where it is inferred, "pid 4711" where it is not known.
std::string describe_nccl_rank(const NcclRankRow& rank);

}  // namespace gpuperf
