#include "daemon/model/gpu_rows.h"

#include <algorithm>
#include <tuple>

namespace gpuperf {

void add_duration(DurationTotals& totals, uint64_t duration_ns) {
  const bool first = totals.histogram.count() == 0;
  totals.total_ns += duration_ns;
  totals.min_ns = first ? duration_ns : std::min(totals.min_ns, duration_ns);
  totals.max_ns = std::max(totals.max_ns, duration_ns);
  totals.histogram.add(bucket_of(duration_ns), 1);
}

void merge_durations(DurationTotals& totals, const DurationTotals& other) {
  if (other.histogram.count() == 0) return;
  const bool first = totals.histogram.count() == 0;
  totals.total_ns += other.total_ns;
  totals.min_ns = first ? other.min_ns : std::min(totals.min_ns, other.min_ns);
  totals.max_ns = std::max(totals.max_ns, other.max_ns);
  totals.histogram.merge(other.histogram);
}

uint64_t get_quantile_ns(const DurationTotals& totals, double quantile) {
  return std::clamp(totals.histogram.quantile_ns(quantile), totals.min_ns, totals.max_ns);
}

uint64_t get_launches(const KernelTotals& totals) { return totals.duration.histogram.count(); }

double get_coverage(const KernelTotals& totals) {
  if (totals.estimated_launches == 0) return 1;
  return static_cast<double>(get_launches(totals)) / static_cast<double>(totals.estimated_launches);
}

void merge_totals(KernelTotals& totals, const KernelTotals& other) {
  merge_durations(totals.duration, other.duration);
  merge_durations(totals.launch_latency, other.launch_latency);
  merge_durations(totals.queue_delay, other.queue_delay);
  totals.graph_launches += other.graph_launches;
  totals.estimated_launches += other.estimated_launches;
}

namespace {

auto get_order(const CopyTotals& copy) {
  return std::make_tuple(copy.is_set, copy.direction, copy.source_memory, copy.target_memory);
}

}  // namespace

void merge_totals(GpuProcessTotals& totals, const GpuProcessTotals& other) {
  for (const CopyTotals& copy : other.copies) {
    auto place = std::ranges::lower_bound(totals.copies, get_order(copy), {}, get_order);
    if (place == totals.copies.end() || get_order(*place) != get_order(copy)) {
      totals.copies.insert(place, copy);
      continue;
    }
    place->bytes += copy.bytes;
    merge_durations(place->duration, copy.duration);
  }
  for (size_t i = 0; i < totals.syncs.size(); ++i) {
    merge_durations(totals.syncs[i], other.syncs[i]);
  }
  for (size_t i = 0; i < totals.overheads.size(); ++i) {
    totals.overheads[i].count += other.overheads[i].count;
    totals.overheads[i].total_ns += other.overheads[i].total_ns;
  }
  if (!other.graphs.empty() && totals.graphs.empty()) totals.graphs.emplace_back();
  for (const GraphTotals& graph : other.graphs) {
    merge_durations(totals.graphs[0].duration, graph.duration);
    merge_durations(totals.graphs[0].launch_latency, graph.launch_latency);
  }
  totals.api_calls += other.api_calls;
  totals.api_errors += other.api_errors;
}

const SessionRow* find_session(const GpuReport& report, const ProcessKey& process) {
  const auto found = std::ranges::find_if(
      report.sessions, [&](const auto& row) { return row->facts.process == process; });
  return found == report.sessions.end() ? nullptr : found->get();
}

uint64_t get_collected_ns(const SessionRow& session, int64_t now_mono_ns) {
  const bool collects = session.open && session.status.state == GPUPERF_SESSION_STATE_COLLECTING;
  if (!collects || now_mono_ns < session.state_since_mono_ns) return session.collected_ns;
  return session.collected_ns + static_cast<uint64_t>(now_mono_ns - session.state_since_mono_ns);
}

std::array<uint32_t, kSessionStates> count_sessions(const GpuReport& report) {
  std::array<uint32_t, kSessionStates> counts{};
  for (const auto& row : report.sessions) {
    if (row->open) ++counts[row->status.state < counts.size() ? row->status.state : 0];
  }
  return counts;
}

}  // namespace gpuperf
