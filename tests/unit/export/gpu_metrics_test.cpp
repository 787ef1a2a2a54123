#include "daemon/export/gpu_metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpuperf {
namespace {

const Owner kPython{.comm = "python"};

KernelTextPtr make_text(const std::string& name) {
  return std::make_shared<const KernelText>(KernelText{.full = name + "(int)", .brief = name});
}

std::shared_ptr<const KernelRow> make_row(const std::string& name,
                                          const std::vector<uint64_t>& durations_ns,
                                          const Owner& owner = kPython, bool folded = false) {
  KernelRow row{.name = make_text(name), .owner = owner, .folded = folded};
  for (const uint64_t duration_ns : durations_ns) add_duration(row.totals.duration, duration_ns);
  return std::make_shared<const KernelRow>(std::move(row));
}

class GpuMetricsTest : public ::testing::Test {
 protected:
  // Samples of one metric: "label values, by comma" -> value, of a histogram its count.
  std::map<std::string, double> scrape(GpuMetrics& metrics, const std::string& name) {
    MetricFamilies families;
    metrics.add(report_, families);
    std::map<std::string, double> samples;
    for (const auto& family : families.take()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        std::string labels;
        for (const auto& label : metric.label) {
          if (!label.value.empty()) labels += (labels.empty() ? "" : ",") + label.value;
        }
        const bool added =
            samples
                .emplace(labels, metric.counter.value + metric.gauge.value +
                                     static_cast<double>(metric.histogram.sample_count))
                .second;
        EXPECT_TRUE(added) << "twice: " << labels;
      }
    }
    return samples;
  }
  std::map<std::string, double> scrape_launches(GpuMetrics& metrics) {
    return scrape(metrics, "gpuperf_kernel_duration_seconds");
  }

  DropCounters drops_;
  GpuReport report_;
};

using Samples = std::map<std::string, double>;

TEST_F(GpuMetricsTest, AddsUpProcessesWithOneOwnerRunningAndForgotten) {
  GpuMetrics metrics(drops_, 100, 100);
  report_.kernels = {make_row("add", {1, 2}), make_row("add", {3}),
                     make_row("add", {4}, {.comm = "other one"})};
  report_.retired_kernels = {make_row("add", {5})};

  EXPECT_EQ(scrape_launches(metrics), (Samples{{"add,python", 4}, {"add,other one", 1}}));
}

TEST_F(GpuMetricsTest, CountsShortKernelsBelowEachEdge) {
  GpuMetrics metrics(drops_, 100, 100);
  report_.kernels = {make_row("add", {1'000, 1'500, 90'000})};
  MetricFamilies families;

  metrics.add(report_, families);

  const auto histogram = families.take().at(0).metric.at(0).histogram;
  EXPECT_EQ(histogram.sample_count, 3u);
  EXPECT_DOUBLE_EQ(histogram.sample_sum, 92'500e-9);
  ASSERT_EQ(histogram.bucket.size(), kDurationEdgesNs.size() + 1);
  EXPECT_EQ(histogram.bucket[0].cumulative_count, 1u);  // below 1.024 us
  EXPECT_EQ(histogram.bucket[1].cumulative_count, 2u);  // below 2.048 us
  EXPECT_EQ(histogram.bucket.back().cumulative_count, 3u);
}

TEST_F(GpuMetricsTest, ShowsTheLongestRunningKernelsOnTheirOwn) {
  GpuMetrics metrics(drops_, 2, 100);
  report_.kernels = {make_row("tiny", {1}), make_row("long", {1'000}), make_row("middle", {500})};

  // Half of the room is for the longest, half for names worth 1 %.
  EXPECT_EQ(scrape_launches(metrics),
            (Samples{{"long,python", 1}, {"middle,python", 1}, {"other,python", 1}}));
  EXPECT_EQ(drops_.get(DropCause::kMetricsKernelsFull), 1u);
}

TEST_F(GpuMetricsTest, KeepsRoomForKernelsThatBecomeWorthIt) {
  GpuMetrics metrics(drops_, 2, 100);
  report_.kernels = {make_row("first", {100'000}), make_row("late", {10, 10})};
  EXPECT_EQ(scrape_launches(metrics), (Samples{{"first,python", 1}, {"other,python", 2}}));

  report_.kernels[1] = make_row("late", {10, 10, 50'000});

  // What it had when it was noticed stays where it was counted.
  EXPECT_EQ(scrape_launches(metrics),
            (Samples{{"first,python", 1}, {"late,python", 0}, {"other,python", 3}}));
  report_.kernels[1] = make_row("late", {10, 10, 50'000, 50'000});
  EXPECT_EQ(scrape_launches(metrics),
            (Samples{{"first,python", 1}, {"late,python", 1}, {"other,python", 3}}));
}

TEST_F(GpuMetricsTest, NeverTakesANameBack) {
  GpuMetrics metrics(drops_, 2, 100);
  report_.kernels = {make_row("first", {10}), make_row("second", {10})};
  (void)scrape_launches(metrics);

  report_.kernels.push_back(make_row("giant", {1'000'000'000}));

  EXPECT_EQ(scrape_launches(metrics),
            (Samples{{"first,python", 1}, {"second,python", 1}, {"other,python", 1}}));
}

TEST_F(GpuMetricsTest, FoldsOwnersBeyondTheBound) {
  GpuMetrics metrics(drops_, 100, 1);
  report_.kernels = {make_row("add", {1}, {.comm = "a"}), make_row("add", {1}, {.comm = "b"}),
                     make_row("add", {1}, {.comm = "c"})};

  EXPECT_EQ(scrape_launches(metrics), (Samples{{"add,a", 1}, {"other,other", 2}}));
  EXPECT_EQ(drops_.get(DropCause::kMetricsSeriesFull), 2u);
}

TEST_F(GpuMetricsTest, LeavesWhatTheStateFoldedUnderOther) {
  GpuMetrics metrics(drops_, 100, 100);
  report_.kernels = {make_row("add", {1}, kPython, /*folded=*/true)};

  EXPECT_EQ(scrape_launches(metrics), (Samples{{"other,other", 1}}));
}

TEST_F(GpuMetricsTest, MakesOneSeriesOfKernelsWithOneShortName) {
  GpuMetrics metrics(drops_, 100, 100);
  report_.kernels = {make_row("\xff", {1}), make_row("\xfe", {1})};

  EXPECT_EQ(scrape_launches(metrics), (Samples{{"\uFFFD,python", 2}}));
}

TEST_F(GpuMetricsTest, AddsUpCopiesWaitsAndGraphsByOwner) {
  GpuMetrics metrics(drops_, 100, 100);
  GpuProcessRow row{.owner = kPython};
  row.totals.copies = {{.direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                        .source_memory = GPUPERF_MEMORY_PAGEABLE,
                        .bytes = 10},
                       {.direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                        .source_memory = GPUPERF_MEMORY_PINNED,
                        .bytes = 5},
                       {.is_set = true, .bytes = 7}};
  add_duration(row.totals.syncs[GPUPERF_SYNC_STREAM], 1'500'000'000);
  row.totals.graphs.resize(2);
  add_duration(row.totals.graphs[0].duration, 1);
  add_duration(row.totals.graphs[1].duration, 1);
  report_.processes = {std::make_shared<const GpuProcessRow>(row)};
  report_.retired_processes = report_.processes;

  EXPECT_EQ(scrape(metrics, "gpuperf_gpu_copied_bytes_total"),
            (Samples{{"python,host_to_device", 30}, {"python,set", 14}}));
  EXPECT_EQ(scrape(metrics, "gpuperf_gpu_sync_seconds_total"), (Samples{{"python,stream", 3}}));
  EXPECT_EQ(scrape(metrics, "gpuperf_graph_launches_total"), (Samples{{"python", 4}}));
}

TEST_F(GpuMetricsTest, ShowsDeviceMemoryOfRunningProcesses) {
  GpuMetrics metrics(drops_, 100, 100);
  GpuProcessRow row{.owner = kPython};
  row.memory = {{.uuid = {1}, .memory = GPUPERF_MEMORY_DEVICE, .used_bytes = 100},
                {.uuid = {1}, .memory = GPUPERF_MEMORY_PINNED, .used_bytes = 7}};
  GpuProcessRow exited = row;
  exited.exited = true;
  report_.processes = {std::make_shared<const GpuProcessRow>(row),
                       std::make_shared<const GpuProcessRow>(exited)};

  EXPECT_EQ(scrape(metrics, "gpuperf_gpu_allocated_bytes"),
            (Samples{{"GPU-01000000-0000-0000-0000-000000000000,python", 100}}));
}

TEST_F(GpuMetricsTest, ShowsHowBusyEachGpuWas) {
  GpuMetrics metrics(drops_, 100, 100);
  report_.activity = {
      {.uuid = {1},
       .busy_ns = 2'000'000'000,
       .without_nccl_ns = 1'500'000'000,
       .kernel_ns = 1'000'000'000},
      {.process = {.pid = 1}, .busy_ns = 3'000'000'000},
      {.process = {.pid = 2}, .busy_ns = 4'000'000'000},
  };

  EXPECT_EQ(scrape(metrics, "gpuperf_gpu_busy_seconds_total"),
            (Samples{{"", 7}, {"GPU-01000000-0000-0000-0000-000000000000", 2}}));
  EXPECT_EQ(scrape(metrics, "gpuperf_gpu_busy_without_nccl_seconds_total"),
            (Samples{{"", 0}, {"GPU-01000000-0000-0000-0000-000000000000", 1.5}}));
  EXPECT_EQ(scrape(metrics, "gpuperf_gpu_kernel_busy_seconds_total"),
            (Samples{{"", 0}, {"GPU-01000000-0000-0000-0000-000000000000", 1}}));
}

TEST_F(GpuMetricsTest, CountsSessionsByStateAndWhatTheyLost) {
  GpuMetrics metrics(drops_, 100, 100);
  SessionRow row;
  row.status.state = GPUPERF_SESSION_STATE_YIELDED;
  row.status.clock_error_ns = 1'000'000'000;
  row.join.clock_worst_ns = 2'000'000'000;
  report_.sessions = {std::make_shared<const SessionRow>(row)};
  row.open = false;
  report_.sessions.push_back(std::make_shared<const SessionRow>(row));
  report_.lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL] = 9;

  const Samples sessions = scrape(metrics, "gpuperf_sessions");
  EXPECT_EQ(sessions.at("yielded"), 1);
  EXPECT_EQ(sessions.size(), kSessionStates);
  EXPECT_EQ(scrape(metrics, "gpuperf_session_lost_records_total").at("queue_full"), 9);
  EXPECT_EQ(scrape(metrics, "gpuperf_session_clock_error_seconds"), (Samples{{"", 2}}));
}

}  // namespace
}  // namespace gpuperf
