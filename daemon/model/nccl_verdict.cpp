#include "daemon/model/nccl_verdict.h"

#include <algorithm>

namespace gpuperf {
namespace {

// Fewer looks may have met anything.
constexpr uint32_t kLooksMin = 2;

// What it did most while the others waited.
std::string find_cause(const NcclLateness& lateness) {
  // Its calls were not late: work of its GPU before them was.
  const bool is_late_in_calls = lateness.host_caused_ns * 2 >= lateness.caused_ns;
  if (lateness.basis == NcclBasis::kGpu && !is_late_in_calls) return "gpu";
  const auto most = std::ranges::max_element(lateness.activities);
  const auto activity = *most < kLooksMin
                            ? NcclActivity::kUnknown
                            : static_cast<NcclActivity>(most - lateness.activities.begin());
  return std::string(get_nccl_activity_name(activity));
}

}  // namespace

std::optional<NcclVerdict> judge_nccl(const NcclCommunicatorRow& communicator,
                                      int64_t now_mono_ns) {
  if (communicator.stall) {
    const NcclStall& stall = *communicator.stall;
    const size_t at = stall.missing_ranks.front();
    return NcclVerdict{
        .is_stuck = true,
        .rank_index = at,
        .cause = std::string(get_nccl_activity_name(communicator.local_ranks[at].activity)),
        .late_ratio = 1,
        .stuck_ns = static_cast<uint64_t>(std::max<int64_t>(now_mono_ns - stall.since_mono_ns, 0))};
  }
  if (!communicator.lateness) return std::nullopt;
  const NcclLateness& lateness = *communicator.lateness;
  return NcclVerdict{.rank_index = lateness.rank_index,
                     .cause = find_cause(lateness),
                     .late_ratio = lateness.get_share()};
}

std::string describe_nccl_rank(const NcclRankRow& rank) {
  if (!rank.rank) return "pid " + std::to_string(rank.process.pid);
  return "rank " + std::to_string(*rank.rank) + (rank.is_rank_inferred ? " of its job" : "");
}

}  // namespace gpuperf
