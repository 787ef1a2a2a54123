#include "daemon/export/nccl_metrics.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/model/nccl_verdict.h"

namespace gpuperf {
namespace {

using Labels = std::vector<std::string>;

Labels with(Labels labels, std::string_view more) {
  labels.emplace_back(more);
  return labels;
}

// Where its number is not known, the process tells it from others.
std::string make_rank_label(const NcclRankRow& rank) {
  return rank.rank ? std::to_string(*rank.rank) : fmt::format("pid{}", rank.process.pid);
}

void add_rank(const NcclRankRow& rank, const Labels& labels, MetricFamilies& families) {
  families.add_counter(Metric::kNcclCollectives, labels, static_cast<double>(rank.collectives));
  for (const NcclBasis basis : {NcclBasis::kHost, NcclBasis::kGpu}) {
    const auto at = static_cast<size_t>(basis);
    const Labels more = with(labels, get_nccl_basis_name(basis));
    families.add_counter(Metric::kNcclWait, more, to_seconds(rank.waited_ns[at]));
    families.add_counter(Metric::kNcclCausedWait, more, to_seconds(rank.caused_ns[at]));
  }
  for (size_t i = 0; i < rank.operations.size(); ++i) {
    const NcclRankTotals& totals = rank.operations[i];
    if (totals.calls == 0) continue;
    const Labels more = with(labels, get_nccl_operation_name(static_cast<NcclOperation>(i)));
    families.add_counter(Metric::kNcclCalls, more, static_cast<double>(totals.calls));
    families.add_counter(Metric::kNcclBytes, more, static_cast<double>(totals.bytes));
    families.add_counter(Metric::kNcclTimedCalls, more, static_cast<double>(totals.timed_calls));
    families.add_counter(Metric::kNcclGpu, more, to_seconds(totals.gpu_ns));
  }
}

void add_verdict(const NcclCommunicatorRow& communicator, const std::optional<NcclVerdict>& verdict,
                 size_t index, const Labels& labels, MetricFamilies& families) {
  const bool is_it = verdict && verdict->rank_index == index;
  const bool is_late = is_it && !verdict->is_stuck;
  families.add_gauge(Metric::kNcclLate, with(labels, is_late ? verdict->cause : ""),
                     is_late ? verdict->late_ratio : 0);
  bool is_stuck = false;
  if (communicator.stall) {
    for (const size_t missing : communicator.stall->missing_ranks) is_stuck |= missing == index;
  }
  families.add_gauge(Metric::kNcclStuck, labels, is_stuck ? to_seconds(verdict->stuck_ns) : 0);
}

// Sums over sizes: the rate of one by that of the other is the bandwidth.
void add_bandwidth(const NcclCommunicatorRow& communicator, const std::string& id,
                   MetricFamilies& families) {
  std::array<double, kNcclOperations> bytes{}, seconds{};
  for (const NcclSizeRow& size : communicator.sizes) {
    const auto at = static_cast<size_t>(size.operation);
    bytes[at] += static_cast<double>(size.timed_bytes) *
                 get_nccl_bus_factor(size.operation, communicator.ranks);
    seconds[at] += to_seconds(size.timed_ns);
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    const Labels labels = {id, std::string(get_nccl_operation_name(static_cast<NcclOperation>(i)))};
    families.add_counter(Metric::kNcclBusBytes, labels, bytes[i]);
    families.add_counter(Metric::kNcclBusSeconds, labels, seconds[i]);
  }
}

}  // namespace

bool NcclMetrics::admit(const Key& key, std::set<Key>& seen, std::set<Key>& refused) {
  if (seen.contains(key)) return false;  // two processes say that they are one rank
  if (shown_.contains(key) || shown_.size() < max_series_) {
    shown_.insert(key);
    seen.insert(key);
    return true;
  }
  const bool is_new = refused.insert(key).second && !refused_.contains(key);
  if (is_new) drops_.add(DropCause::kMetricsSeriesFull);
  return false;
}

void NcclMetrics::add(const Snapshot& snapshot, MetricFamilies& families) {
  std::set<Key> seen, refused;
  for (const auto& communicator : snapshot.nccl.communicators) {
    const std::string id = fmt::format("{:016x}", communicator->id);
    const auto verdict = judge_nccl(*communicator, snapshot.taken_mono_ns);
    bool is_any_shown = false;
    for (size_t i = 0; i < communicator->local_ranks.size(); ++i) {
      const NcclRankRow& rank = communicator->local_ranks[i];
      const std::string label = make_rank_label(rank);
      if (!admit({communicator->id, label}, seen, refused)) continue;
      is_any_shown = true;
      const Owner& owner = get_owner(snapshot, rank.process);
      const Labels labels = {id,
                             label,
                             to_valid_utf8(owner.comm),
                             to_valid_utf8(owner.pod),
                             to_valid_utf8(owner.pod_namespace),
                             to_valid_utf8(owner.slurm_job)};
      add_rank(rank, labels, families);
      add_verdict(*communicator, verdict, i, labels, families);
    }
    if (is_any_shown) add_bandwidth(*communicator, id, families);
  }
  shown_ = std::move(seen);
  refused_ = std::move(refused);
}

}  // namespace gpuperf
