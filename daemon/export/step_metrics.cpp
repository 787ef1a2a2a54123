#include "daemon/export/step_metrics.h"

#include <array>
#include <map>
#include <string>

#include "daemon/model/display_text.h"
#include "daemon/model/step.h"

namespace gpuperf {
namespace {

// Two functions that share category and name are one series.
std::map<std::array<std::string, 3>, StepTotals> sum_by_labels(const Snapshot& snapshot) {
  std::map<std::array<std::string, 3>, StepTotals> sums;
  for (const StepSeries& series : snapshot.steps.series) {
    if (series.function_id >= snapshot.functions->size()) continue;
    const Function& function = (*snapshot.functions)[series.function_id];
    StepTotals& sum = sums[{to_valid_utf8(function.category), to_valid_utf8(function.name),
                            std::string(get_step_phase_name(series.phase))}];
    sum.durations.merge(series.totals.durations);
    sum.total_ns += series.totals.total_ns;
    sum.slow += series.totals.slow;
    for (size_t i = 0; i < kStepQualities; ++i) sum.tokens[i] += series.totals.tokens[i];
  }
  return sums;
}

void add_request_metrics(const RequestTotals& totals, MetricFamilies& families) {
  if (totals.first.count() == 0) return;
  families.add(Metric::kRequestFirst, {}).histogram = make_histogram(totals.first, totals.first_ns);
  families.add(Metric::kRequestGap, {}).histogram = make_histogram(totals.gaps, totals.gaps_ns);
  families.add_counter(Metric::kSlowRequests, {}, static_cast<double>(totals.slow));
}

}  // namespace

void add_step_metrics(const Snapshot& snapshot, MetricFamilies& families) {
  add_request_metrics(snapshot.requests.totals, families);
  if (snapshot.functions == nullptr) return;
  for (const auto& [labels, totals] : sum_by_labels(snapshot)) {
    families.add(Metric::kStepDuration, labels).histogram =
        make_histogram(totals.durations, totals.total_ns);
    families.add_counter(Metric::kSlowSteps, labels, static_cast<double>(totals.slow));
    for (size_t i = 0; i < kStepQualities; ++i) {
      if (totals.tokens[i] == 0) continue;
      const std::string quality(get_step_quality_name(static_cast<StepQuality>(i)));
      const std::string values[] = {labels[0], labels[1], labels[2], quality};
      families.add_counter(Metric::kStepTokens, values, static_cast<double>(totals.tokens[i]));
    }
  }
  for (const StepStall stall : {StepStall::kInStep, StepStall::kBetweenSteps}) {
    const std::string where(get_step_stall_name(stall));
    const auto index = static_cast<size_t>(stall);
    families.add_counter(Metric::kStepStalls, {&where, 1},
                         static_cast<double>(snapshot.steps.stalls[index]));
    families.add_gauge(Metric::kStepStalled, {&where, 1},
                       static_cast<double>(snapshot.steps.stalled[index]));
  }
}

}  // namespace gpuperf
