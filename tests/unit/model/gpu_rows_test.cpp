#include "daemon/model/gpu_rows.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

DurationTotals make_durations(const std::vector<uint64_t>& durations_ns) {
  DurationTotals totals;
  for (const uint64_t duration_ns : durations_ns) add_duration(totals, duration_ns);
  return totals;
}

TEST(GpuRowsTest, AddsUpDurations) {
  const DurationTotals totals = make_durations({300, 0, 700});

  EXPECT_EQ(totals.total_ns, 1'000u);
  EXPECT_EQ(totals.min_ns, 0u);
  EXPECT_EQ(totals.max_ns, 700u);
  EXPECT_EQ(totals.histogram.count(), 3u);
}

TEST(GpuRowsTest, MergesDurationsAsIfAddedUpTogether) {
  DurationTotals totals = make_durations({300, 500});
  merge_durations(totals, make_durations({200, 900}));
  merge_durations(totals, {});
  DurationTotals empty;
  merge_durations(empty, totals);

  EXPECT_EQ(totals, make_durations({300, 500, 200, 900}));
  EXPECT_EQ(empty, totals);
}

TEST(GpuRowsTest, GivesQuantilesWithinWhatWasMeasured) {
  EXPECT_EQ(get_quantile_ns(make_durations({1'000'000}), 0.5), 1'000'000u);
  EXPECT_EQ(get_quantile_ns({}, 0.99), 0u);
}

TEST(GpuRowsTest, KnowsTheCoverageOfASample) {
  EXPECT_DOUBLE_EQ(get_coverage({}), 1);
  EXPECT_DOUBLE_EQ(get_coverage({.duration = make_durations({1, 2}), .estimated_launches = 20}),
                   0.1);
}

TEST(GpuRowsTest, MergesGraphsOfProcessesIntoOne) {
  GpuProcessTotals first{.graphs = {{.graph_id = 3, .duration = make_durations({5})},
                                    {.graph_id = 4, .duration = make_durations({6})}}};
  GpuProcessTotals merged;

  merge_totals(merged, first);
  merge_totals(merged, first);

  EXPECT_EQ(merged.graphs,
            (std::vector<GraphTotals>{{.graph_id = 0, .duration = make_durations({5, 6, 5, 6})}}));
}

TEST(GpuRowsTest, MergesCopiesByWhatTheyAre) {
  const CopyTotals copy{.direction = 1, .source_memory = 2, .target_memory = 3, .bytes = 10};
  const CopyTotals set{.is_set = true, .target_memory = 3, .bytes = 1};
  GpuProcessTotals merged{.copies = {copy}};

  merge_totals(merged, {.copies = {copy, set}, .api_calls = 2, .api_errors = 1});

  CopyTotals twice = copy;
  twice.bytes = 20;
  EXPECT_EQ(merged, (GpuProcessTotals{.copies = {twice, set}, .api_calls = 2, .api_errors = 1}));
}

TEST(GpuRowsTest, CountsOpenSessionsByState) {
  GpuReport report;
  for (const auto& [state, open] : {std::pair<uint32_t, bool>(GPUPERF_SESSION_STATE_YIELDED, true),
                                    std::pair<uint32_t, bool>(0, true),
                                    std::pair<uint32_t, bool>(GPUPERF_SESSION_STATE_YIELDED, false),
                                    std::pair<uint32_t, bool>(99, true)}) {
    SessionRow row;
    row.status.state = state;
    row.open = open;
    report.sessions.push_back(std::make_shared<const SessionRow>(row));
  }

  const auto counts = count_sessions(report);

  EXPECT_EQ(counts[GPUPERF_SESSION_STATE_YIELDED], 1u);
  EXPECT_EQ(counts[0], 2u);
}

}  // namespace
}  // namespace gpuperf
