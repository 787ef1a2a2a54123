#include "daemon/export/prometheus.h"

#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "daemon/model/memory.h"
#include "daemon/model/metric_catalog.h"
#include "tests/unit/export/snapshot_builder.h"
#include "tests/unit/golden_file.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using testing::make_totals;
using testing::SnapshotBuilder;

constexpr uint64_t kNoBound = 1'000'000;

// Samples of an exposition: "name{labels}" -> value. Fails the test on a sample given twice.
std::map<std::string, double> parse_samples(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const size_t space = line.rfind(' ');
    const bool added =
        samples.try_emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second;
    EXPECT_TRUE(added) << "twice: " << line;
  }
  return samples;
}

std::string function_sample(const std::string& metric, const std::string& function,
                            const std::string& comm, const std::string& more = "") {
  return metric + "{category=\"cuda\",function=\"" + function + "\",comm=\"" + comm +
         "\",container=\"\",pod=\"\",namespace=\"\",slurm_job=\"\",slurm_rank=\"\"" + more + "}";
}

class PrometheusTest : public ::testing::Test {
 protected:
  uint32_t add_function(const std::string& name) {
    return builder_.add_function(
        {.category = "cuda", .name = name, .status = StatusKind::kCudaRuntime});
  }
  void add_series(uint32_t function_id, const std::string& comm, FunctionTotals totals) {
    builder_.add_series(function_id, {.comm = comm}, std::move(totals));
  }
  std::string scrape(const PrometheusMetrics& metrics) {
    board_.publish(builder_.build());
    return render_metrics_text(metrics);
  }
  // The snapshot the golden file shows: every metric, an error beside its name, a folded owner.
  void build_golden() {
    const uint32_t malloc_id = add_function("cudaMalloc");
    const uint32_t linear_id =
        builder_.add_function({.category = "libtorch", .name = "linear_forward"});
    FunctionTotals totals = make_totals({800, 1'500, 1'500, 90'000, 2'000'000'000});
    totals.calls += 3;
    totals.abandoned = 1;
    totals.slow_calls = 1;
    totals.errors = {{2, 4}, {999'999, 1}};
    totals.other_errors = 2;
    totals.bytes = {4096, 0, 70, 90, 0, 0};
    totals.flops = 600;
    totals.missed = {.calls = 1000, .slow_calls = 2, .variance = 100, .bias_calls = 5};
    const Owner rank{.comm = "python3",
                     .container = "0123456789ab",
                     .pod = "train-0",
                     .pod_namespace = "ml",
                     .slurm_job = "4711",
                     .slurm_rank = "3"};
    builder_.add_series(malloc_id, rank, totals);
    add_series(malloc_id, "odd\"name\\\n\xFF", make_totals({300}));
    add_series(linear_id, "python3", {.calls = 12, .untimed = 12});
    Snapshot& snapshot = builder_.snapshot();
    snapshot.processes = {{.process = {.pid = 0}},
                          {.process = {.pid = 7}, .owner = rank},
                          {.process = {.pid = 8}, .exited = true}};
    snapshot.in_flight = std::make_shared<const InFlightCalls>(
        InFlightCalls{.calls = {{.function_id = malloc_id,
                                 .process = {.pid = 7},
                                 .start_mono_ns = 1'000'000'000}},
                      .look_mono_ns = 42'500'000'000});
    snapshot.coverage = {0.75};
    snapshot.suspensions = {{.function_id = malloc_id}};
    snapshot.overhead = {{.process = {.pid = 7},
                          .owner = rank,
                          .ratio = 0.0125,
                          .hooks_ratio = 0.0025,
                          .cupti_ratio = 0.005,
                          .correction = 1.5,
                          .measured = OverheadMeasurement{.ratio = 0.0075}}};
    snapshot.qos_rules = {{.rule = {.name = "decode"}, .is_breached = true, .breaches = 3},
                          {.rule = {.name = "prefill"}}};
    snapshot.cpu_ns = 1'250'000'000;
    snapshot.resident_bytes = 24'000'000;
    builder_.probes().probes = {{.state = ProbeState::kAttached},
                                {.state = ProbeState::kAttached},
                                {.state = ProbeState::kSymbolMissing},
                                {.state = ProbeState::kSuspended},
                                {.state = ProbeState::kAlias}};
    snapshot.gpus = make_gpus();
    snapshot.self.bounds = {{.bound = Bound::kCells, .used = 12, .limit = 8'192, .highest = 40}};
    snapshot.self.add(MemoryPart::kRest, 1'234'000);
    DurationCounts writes;
    for (const int ms : {1, 3, 3, 40}) writes.add(std::chrono::milliseconds(ms));
    snapshot.self.steps = {{std::string(kStoreWriteStep), writes.get()}};
    drops_.add(DropCause::kBpfSlowRingFull, 17);
    Step step{.start_mono_ns = 1'000,
              .completed_mono_ns = 3'001'000,
              .tokens = {8, StepQuality::kExact},
              .threshold_ns = 2'000'000};
    StepSeries decode{.function_id = linear_id, .phase = StepPhase::kDecode};
    add_step(decode.totals, step);
    snapshot.steps = {.series = {decode}, .stalls = {0, 3, 1}, .stalled = {4, 1, 0}};
    snapshot.requests.totals = {.first_ns = 2'000'000, .gaps_ns = 30'000'000, .slow = 1};
    snapshot.requests.totals.first.add(bucket_of(2'000'000), 1);
    snapshot.requests.totals.gaps.add(bucket_of(10'000'000), 3);
    build_golden_gpu(rank);
    builder_.snapshot().nccl.communicators = {make_communicator(0xabc, 7)};
  }
  // Of two ranks on one host, the second of which is late.
  static std::shared_ptr<const NcclCommunicatorRow> make_communicator(uint64_t id, uint32_t pid) {
    NcclCommunicatorRow row{.id = id, .ranks = 4};
    NcclRankRow rank{.process = {.pid = pid}, .rank = 2, .collectives = 5};
    rank.waited_ns = {1'500'000'000, 1'000'000'000};
    rank.operations[0] = {.calls = 5, .bytes = 4'096, .timed_calls = 4, .gpu_ns = 2'000'000};
    row.local_ranks = {rank, {.process = {.pid = pid + 1}}};
    row.sizes = {{.operation = NcclOperation::kAllReduce,
                  .timed = 4,
                  .timed_bytes = 1'000,
                  .timed_ns = 500'000}};
    row.lateness = NcclLateness{
        .rank_index = 1, .basis = NcclBasis::kHost, .covered_ns = 100, .caused_ns = 25};
    return std::make_shared<const NcclCommunicatorRow>(row);
  }
  void build_golden_gpu(const Owner& owner) {
    GpuReport& gpu = builder_.snapshot().gpu;
    KernelRow kernel{.name = std::make_shared<const KernelText>(
                         KernelText{.full = "void f<int>(int)", .brief = "f<int>"}),
                     .owner = owner};
    add_duration(kernel.totals.duration, 5'000);
    add_duration(kernel.totals.launch_latency, 7'000);
    gpu.kernels = {std::make_shared<const KernelRow>(kernel)};
    GpuProcessRow process{.owner = owner};
    process.totals.copies = {{.direction = GPUPERF_MEMCPY_HOST_TO_DEVICE, .bytes = 4096}};
    add_duration(process.totals.syncs[GPUPERF_SYNC_CONTEXT], 2'000'000);
    process.totals.graphs.resize(1);
    add_duration(process.totals.graphs[0].duration, 9'000);
    process.memory = {{.uuid = {0xab}, .memory = GPUPERF_MEMORY_DEVICE, .used_bytes = 1 << 20}};
    gpu.processes = {std::make_shared<const GpuProcessRow>(process)};
    gpu.activity = {{.uuid = {0xab},
                     .busy_ns = 4'000'000'000,
                     .without_nccl_ns = 3'500'000'000,
                     .kernel_ns = 3'000'000'000,
                     .copy_ns = 2'000'000'000,
                     .graph_ns = 1'000'000'000}};
    SessionRow session;
    session.status.state = GPUPERF_SESSION_STATE_COLLECTING;
    session.status.clock_error_ns = 250;
    gpu.sessions = {std::make_shared<const SessionRow>(session)};
    gpu.lost_records[GPUPERF_SESSION_LOSS_QUEUE_FULL] = 6;
    MemoryReport memory;
    MemoryProcess holder = make_memory(owner, 3 << 20);
    holder.has_leaked = true;
    holder.sites = {make_leak(40 << 20)};
    memory.processes = {std::make_shared<const MemoryProcess>(holder)};
    memory.out_of_memory_counts = {{owner, 2}};
    builder_.snapshot().memory = std::make_shared<const MemoryReport>(memory);
  }
  static MemoryProcess make_memory(const Owner& owner, uint64_t live_bytes) {
    MemoryProcess process;
    process.owner = owner;
    process.kinds[static_cast<size_t>(MemoryKind::kDevice)] = {
        .live_bytes = live_bytes, .peak_bytes = live_bytes + 10, .allocations = 1};
    return process;
  }
  static MemorySite make_leak(uint64_t grown_bytes) {
    return {.growth = MemoryGrowth{
                .window_ns = 40'000'000'000, .grown_bytes = grown_bytes, .is_leak = true}};
  }
  // One with every value, and one that was lost.
  static std::shared_ptr<const GpuHealthReport> make_gpus() {
    GpuHealth gpu{.uuid_text = "GPU-0123abcd-0000-1111-2222-000000000000",
                  .name = "NVIDIA H200",
                  .pci_bus_id = "00000000:19:00.0",
                  .utilization_ratio = 0.87,
                  .memory_utilization_ratio = 0.41,
                  .memory_used_bytes = uint64_t{45} << 30,
                  .memory_total_bytes = uint64_t{140} << 30,
                  .power_mw = 512'000,
                  .power_limit_mw = 700'000,
                  .energy_mj = 123'456'000,
                  .sm_clock_hz = 1'755'000'000,
                  .sm_clock_max_hz = 1'980'000'000,
                  .memory_clock_hz = 3'201'000'000,
                  .memory_clock_max_hz = 3'201'000'000,
                  .temperature_celsius = 54,
                  .has_clock_limits = true,
                  .ecc = {.corrected_volatile = 2, .uncorrected_volatile = 0},
                  .pcie = {.replays = 5},
                  .repair = {.remapped_corrected = 1, .remapped_uncorrected = 0},
                  .xids = {{31, {.count = 3}}}};
    GpuCounterValues values;
    for (size_t i = 0; i < kGpuCounters; ++i) values[i] = 10'000 * (i + 1);
    gpu.counters = {.window = {.start_mono_ns = 1, .end_mono_ns = 2, .values = values},
                    .samples = 9,
                    .failed_samples = 2};
    gpu.instance_counters[3] = {.window = {.start_mono_ns = 1, .end_mono_ns = 2}, .samples = 2};
    gpu.instance_counters[3].window.values[static_cast<size_t>(GpuCounter::kSm)] = 500'000;
    ClockLimitState& capped = gpu.clock_limits[static_cast<size_t>(ClockLimit::kPowerCap)];
    capped.is_active = true;
    capped.total_ns = 1'500'000'000;
    GpuHealth lost{.index = 1,
                   .uuid_text = "GPU-0123abcd-0000-1111-2222-000000000001",
                   .name = "NVIDIA H200",
                   .pci_bus_id = "00000000:3b:00.0",
                   .is_lost = true,
                   .power_mw = 90'000,
                   .xids = {{79, {.count = 1}}}};
    return std::make_shared<const GpuHealthReport>(
        GpuHealthReport{.driver_version = "580.65.06", .gpus = {std::move(gpu), std::move(lost)}});
  }

  SnapshotBuilder builder_;
  SnapshotBoard board_;
  DropCounters drops_;
};

TEST_F(PrometheusTest, RendersTheGoldenExposition) {
  build_golden();
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  expect_golden(source_path("tests/unit/export/golden/metrics.txt"), scrape(metrics));
}

TEST_F(PrometheusTest, AddsUpMemoryOfRunningProcessesWithOneOwner) {
  MemoryReport memory;
  const Owner owner{.comm = "train"};
  MemoryProcess leaking = make_memory(owner, 100);
  leaking.has_leaked = true;
  leaking.sites = {make_leak(400), make_leak(800)};
  MemoryProcess quiet = make_memory(owner, 20);
  MemoryProcess healed = make_memory({.comm = "healed"}, 1);
  healed.has_leaked = true;
  MemoryProcess exited = make_memory(owner, 7);
  exited.exited = true;
  for (const MemoryProcess& process : {leaking, quiet, healed, exited}) {
    memory.processes.push_back(std::make_shared<const MemoryProcess>(process));
  }
  memory.out_of_memory_counts = {{owner, 3}};
  builder_.snapshot().memory = std::make_shared<const MemoryReport>(memory);
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));
  const auto find = [&](const std::string& metric, const std::string& comm,
                        const std::string& more = "") {
    return samples.at(metric + "{comm=\"" + comm +
                      "\",container=\"\",pod=\"\",namespace=\"\",slurm_job=\"\",slurm_rank=\"\"" +
                      more + "}");
  };
  const std::string kind = ",kind=\"device\"";
  EXPECT_EQ(find("gpuperf_memory_live_bytes", "train", kind), 120);
  EXPECT_EQ(find("gpuperf_memory_peak_bytes", "train", kind), 140);
  EXPECT_EQ(find("gpuperf_memory_leak_bytes_per_second", "train"), 30);
  EXPECT_EQ(find("gpuperf_memory_leak_bytes_per_second", "healed"), 0);
  EXPECT_EQ(find("gpuperf_memory_allocation_failures_total", "train"), 3);
}

TEST_F(PrometheusTest, FoldsOwnersOfMemoryBeyondTheBound) {
  MemoryReport memory;
  for (const char* comm : {"a", "b", "c"}) {
    memory.processes.push_back(
        std::make_shared<const MemoryProcess>(make_memory({.comm = comm}, 10)));
  }
  builder_.snapshot().memory = std::make_shared<const MemoryReport>(memory);
  const PrometheusMetrics metrics(board_, drops_, 1, 100);

  const std::string text = scrape(metrics);
  EXPECT_THAT(text, HasSubstr("gpuperf_memory_live_bytes{comm=\"other\","));
  EXPECT_EQ(drops_.get(DropCause::kMetricsSeriesFull), 2u);
}

TEST_F(PrometheusTest, ExportsAsManyRanksAsThereIsRoomFor) {
  builder_.snapshot().nccl.communicators = {make_communicator(1, 7), make_communicator(2, 9),
                                            make_communicator(2, 9)};
  const PrometheusMetrics metrics(board_, drops_, 3, 100);

  for (int i = 0; i < 2; ++i) {
    const std::string text = scrape(metrics);
    EXPECT_THAT(
        text,
        HasSubstr("gpuperf_nccl_stuck_seconds{communicator=\"0000000000000001\",rank=\"pid8\""));
    EXPECT_THAT(
        text, HasSubstr("gpuperf_nccl_stuck_seconds{communicator=\"0000000000000002\",rank=\"2\""));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("rank=\"pid10\""))) << "that would be the fourth";
  }
  EXPECT_EQ(drops_.get(DropCause::kMetricsSeriesFull), 1u) << "once";
  builder_.snapshot().nccl.communicators = {make_communicator(2, 9)};
  (void)scrape(metrics);
  EXPECT_THAT(scrape(metrics), HasSubstr("rank=\"pid10\"")) << "others had gone before";
}

TEST_F(PrometheusTest, ExportsEveryMetricOfTheCatalog) {
  build_golden();
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const std::string text = scrape(metrics);

  for (const MetricRow& row : metric_rows()) {
    EXPECT_THAT(text, HasSubstr("# TYPE " + std::string(row.name) + " "));
  }
}

TEST_F(PrometheusTest, ShowsEveryDropCauseBeforeTheFirstSnapshot) {
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(render_metrics_text(metrics));

  for (const DropRow& row : drop_rows()) {
    const std::string sample = "gpuperf_dropped_total{stage=\"" + std::string(row.stage) +
                               "\",reason=\"" + std::string(row.reason) + "\"}";
    ASSERT_TRUE(samples.contains(sample)) << sample;
    EXPECT_EQ(samples.at(sample), 0);
  }
}

TEST_F(PrometheusTest, CountsDurationsExactlyAtEveryEdge) {
  const uint32_t id = add_function("f");
  FunctionTotals totals = make_totals({});
  for (const uint64_t edge_ns : kDurationEdgesNs) {
    merge_totals(totals, make_totals({edge_ns - 1, edge_ns}));
  }
  add_series(id, "p", totals);
  board_.publish(builder_.build());
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto families = metrics.Collect();

  const auto duration = std::ranges::find(families, "gpuperf_function_duration_seconds",
                                          &prometheus::MetricFamily::name);
  ASSERT_NE(duration, families.end());
  const auto& histogram = duration->metric.at(0).histogram;
  ASSERT_EQ(histogram.bucket.size(), kDurationEdgesNs.size() + 1);
  for (size_t i = 0; i < kDurationEdgesNs.size(); ++i) {
    EXPECT_EQ(histogram.bucket[i].cumulative_count, 2 * i + 1);
    EXPECT_EQ(histogram.bucket[i].upper_bound, static_cast<double>(kDurationEdgesNs[i]) / 1e9);
  }
  EXPECT_EQ(histogram.bucket.back().cumulative_count, 2 * kDurationEdgesNs.size());
  EXPECT_EQ(histogram.sample_count, 2 * kDurationEdgesNs.size());
  EXPECT_EQ(histogram.sample_sum, static_cast<double>(totals.total_ns) / 1e9);
}

TEST_F(PrometheusTest, FoldsOwnersBeyondTheBoundIntoOther) {
  const uint32_t f = add_function("f");
  const uint32_t g = add_function("g");
  const PrometheusMetrics metrics(board_, drops_, 2, 100);
  add_series(f, "a", make_totals({500}));
  add_series(f, "b", make_totals({500}));
  add_series(f, "c", make_totals({500, 600}));
  add_series(f, "d", make_totals({500, 600, 700}));
  add_series(g, "a", make_totals({500}));

  const auto samples = parse_samples(scrape(metrics));

  const std::string calls = "gpuperf_function_calls_total";
  EXPECT_EQ(samples.at(function_sample(calls, "f", "a")), 1);
  EXPECT_EQ(samples.at(function_sample(calls, "f", "b")), 1);
  EXPECT_EQ(samples.at(function_sample(calls, "f", "other")), 5);
  EXPECT_EQ(samples.at(function_sample(calls, "g", "other")), 1);
  EXPECT_FALSE(samples.contains(function_sample(calls, "f", "c")));
  EXPECT_EQ(samples.at(function_sample("gpuperf_function_duration_seconds_count", "f", "other")),
            5);
}

TEST_F(PrometheusTest, CountsAFoldedSetOnceAndNotPerScrape) {
  const uint32_t f = add_function("f");
  const PrometheusMetrics metrics(board_, drops_, 1, 100);
  add_series(f, "a", make_totals({500}));
  add_series(f, "b", make_totals({500}));
  add_series(f, "c", make_totals({500}));

  scrape(metrics);
  const std::string text = scrape(metrics);

  EXPECT_EQ(drops_.get(DropCause::kMetricsSeriesFull), 2u);
  EXPECT_THAT(text, HasSubstr("gpuperf_dropped_total{stage=\"metrics\",reason=\"series_full\"} 2"));
}

TEST_F(PrometheusTest, KeepsWhatItOnceExportedWhateverTheOrder) {
  const uint32_t f = add_function("f");
  const PrometheusMetrics metrics(board_, drops_, 1, 100);
  add_series(f, "z", make_totals({500}));
  scrape(metrics);
  std::vector<std::shared_ptr<const FunctionSeries>>& series = builder_.snapshot().series;
  add_series(f, "a", make_totals({500, 600}));
  std::swap(series.front(), series.back());

  const auto samples = parse_samples(scrape(metrics));

  EXPECT_EQ(samples.at(function_sample("gpuperf_function_calls_total", "f", "z")), 1);
  EXPECT_EQ(samples.at(function_sample("gpuperf_function_calls_total", "f", "other")), 2);
}

TEST_F(PrometheusTest, MergesTheStatesOwnOtherWithWhatItFolds) {
  const uint32_t f = add_function("f");
  const PrometheusMetrics metrics(board_, drops_, 1, 100);
  add_series(f, "other", make_totals({500}));  // takes no place: it may always exist
  add_series(f, "a", make_totals({500}));
  add_series(f, "b", make_totals({500}));

  const auto samples = parse_samples(scrape(metrics));

  EXPECT_EQ(samples.at(function_sample("gpuperf_function_calls_total", "f", "a")), 1);
  EXPECT_EQ(samples.at(function_sample("gpuperf_function_calls_total", "f", "other")), 2);
}

TEST_F(PrometheusTest, MergesSetsWhoseLabelsAreTheSame) {
  const uint32_t f = add_function("f");
  const uint32_t same_name = add_function("f");
  add_series(f, "bad\xFF", make_totals({500}));
  add_series(same_name, "bad\xFE", make_totals({500}));
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));

  EXPECT_EQ(samples.at(function_sample("gpuperf_function_calls_total", "f", "bad\uFFFD")), 2);
}

TEST_F(PrometheusTest, MergesStepsOfFunctionsWithTheSameName) {
  StepSeries series{.function_id = add_function("f"), .phase = StepPhase::kDecode};
  series.totals.slow = 2;
  builder_.snapshot().steps.series.push_back(series);
  series.function_id = add_function("f");
  builder_.snapshot().steps.series.push_back(series);
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));

  EXPECT_EQ(
      samples.at("gpuperf_slow_steps_total{category=\"cuda\",function=\"f\",phase=\"decode\"}"), 4);
}

TEST_F(PrometheusTest, NamesErrorsAndAddsThoseBeyondTheSlots) {
  const uint32_t f = add_function("f");
  FunctionTotals totals;
  totals.errors = {{2, 4}, {999'999, 1}};
  totals.other_errors = 3;
  add_series(f, "p", totals);
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));

  const auto errors = [&samples](const std::string& error) {
    return samples.at(
        function_sample("gpuperf_function_errors_total", "f", "p", ",error=\"" + error + "\""));
  };
  EXPECT_EQ(errors("cudaErrorMemoryAllocation"), 4);
  EXPECT_EQ(errors("999999"), 1);
  EXPECT_EQ(errors("other"), 3);
}

TEST_F(PrometheusTest, CountersNeverFallBetweenScrapes) {
  const uint32_t f = add_function("f");
  const PrometheusMetrics metrics(board_, drops_, 2, 100);
  const auto is_counter = [](const std::string& sample) {
    const size_t name_end = sample.find('{');
    const std::string name = sample.substr(0, name_end);
    return name.ends_with("_total") || name.ends_with("_bucket") || name.ends_with("_count") ||
           name.ends_with("_sum");
  };
  std::map<std::string, double> before;

  for (uint64_t round = 1; round <= 6; ++round) {
    builder_.snapshot().series.clear();
    for (uint64_t owner = 0; owner < round; ++owner) {
      FunctionTotals totals = make_totals(std::vector<uint64_t>(round, 1'000 * (owner + 1)));
      // A call given up for lost in one round returns in the next.
      totals.abandoned = round % 2 == 0 ? 5 : 4;
      add_series(f, std::string(1, static_cast<char>('a' + owner)), totals);
    }
    const auto now = parse_samples(scrape(metrics));
    for (const auto& [sample, value] : before) {
      if (!is_counter(sample)) continue;
      ASSERT_TRUE(now.contains(sample)) << sample;
      EXPECT_GE(now.at(sample), value) << sample;
    }
    before = now;
  }
  EXPECT_EQ(before.at(function_sample("gpuperf_function_abandoned_total", "f", "a")), 5);
}

TEST_F(PrometheusTest, IgnoresAbandonedCallsBelowZero) {
  const uint32_t f = add_function("f");
  FunctionTotals totals;
  totals.abandoned = static_cast<uint64_t>(-1);
  add_series(f, "p", totals);
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));

  EXPECT_EQ(samples.at(function_sample("gpuperf_function_abandoned_total", "f", "p")), 0);
}

TEST_F(PrometheusTest, LeavesTheHistogramOutWhereNothingIsTimed) {
  const uint32_t f = builder_.add_function({.category = "cuda", .name = "f"});
  add_series(f, "p", {.calls = 3, .untimed = 3});
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const std::string text = scrape(metrics);

  EXPECT_THAT(text, HasSubstr(function_sample("gpuperf_function_calls_total", "f", "p") + " 3"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("gpuperf_function_duration_seconds")));
}

TEST_F(PrometheusTest, ShowsOnlyTheDirectionsThatHaveBytes) {
  const uint32_t f = add_function("f");
  add_series(f, "p", {.calls = 1, .bytes = {0, 0, 70, 0, 0, 5}});
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const std::string text = scrape(metrics);

  const auto bytes = [](const std::string& direction) {
    return function_sample("gpuperf_function_bytes_total", "f", "p",
                           ",direction=\"" + direction + "\"");
  };
  EXPECT_THAT(text, HasSubstr(bytes("host_to_device") + " 70"));
  EXPECT_THAT(text, HasSubstr(bytes("default") + " 5"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("direction=\"plain\"")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("gpuperf_function_flops_total")));
}

TEST_F(PrometheusTest, AddsUpTheBytesOfCopiesByKind) {
  const uint32_t f = add_function("f");
  const uint32_t g = add_function("g");
  add_series(f, "p", {.bytes = {1'000, 1, 2, 3, 4, 5}});
  add_series(f, "q", {.bytes = {0, 0, 20, 0, 0, 0}});
  add_series(g, "p", {.bytes = {0, 0, 0, 30, 0, 0}});
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));

  EXPECT_EQ(samples.at("gpuperf_memcpy_bytes_total{kind=\"host_to_host\"}"), 1);
  EXPECT_EQ(samples.at("gpuperf_memcpy_bytes_total{kind=\"host_to_device\"}"), 22);
  EXPECT_EQ(samples.at("gpuperf_memcpy_bytes_total{kind=\"device_to_host\"}"), 33);
  EXPECT_EQ(samples.at("gpuperf_memcpy_bytes_total{kind=\"device_to_device\"}"), 4);
  EXPECT_EQ(samples.at("gpuperf_memcpy_bytes_total{kind=\"default\"}"), 5);
}

TEST_F(PrometheusTest, NamesTheLatestSlowCallOfEachBucketInOpenMetrics) {
  const uint32_t f = add_function("f");
  add_series(f, "p", make_totals({500, 1'500'000, 1'600'000}));
  const auto add_call = [&](uint64_t id, uint64_t start_unix_ns, uint64_t duration_ns,
                            std::optional<ThreadState> in_flight = {}) {
    SlowCall call{.id = id, .category = "cuda", .function = "f", .start_unix_ns = start_unix_ns};
    call.event.owner.comm = "p";
    call.event.duration_ns = duration_ns;
    call.event.in_flight = in_flight;
    builder_.snapshot().slow_calls.push_back(std::make_shared<const SlowCall>(call));
  };
  add_call(7, 2'000'000'000, 1'500'000);
  add_call(8, 1'000'000'000, 1'600'000);
  add_call(9, 3'000'000'000, 1'600'000, ThreadState{});
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);
  (void)scrape(metrics);

  const std::string text =
      render_metrics_text(metrics, MetricsFormat::kOpenMetrics, metrics.list_exemplars());

  const std::string bucket =
      function_sample("gpuperf_function_duration_seconds_bucket", "f", "p", ",le=\"0.002097152\"");
  EXPECT_THAT(text, HasSubstr(bucket + " 3 # {slow_call_id=\"7\"} 0.0015 2.0015\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("slow_call_id=\"8\"")));
  EXPECT_THAT(text, HasSubstr("# TYPE gpuperf_function_calls counter\n"));
  EXPECT_THAT(text, HasSubstr("\ngpuperf_function_calls_total{"));
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
}

TEST_F(PrometheusTest, WritesNumbersWithoutNoise) {
  add_series(add_function("f"), "p", make_totals({500}));
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const std::string text = scrape(metrics);

  for (const char* edge : {"1.024e-06", "8.192e-06", "0.008388608", "+Inf"}) {
    EXPECT_THAT(text, HasSubstr("le=\"" + std::string(edge) + "\""));
  }
  EXPECT_THAT(text, ::testing::Not(HasSubstr("0000000001")));
}

TEST_F(PrometheusTest, ShowsTheOldestCallInFlightOfEverySet) {
  const uint32_t f = add_function("f");
  const uint32_t g = add_function("g");
  for (const uint32_t id : {f, g}) {
    for (const char* comm : {"p", "q"}) add_series(id, comm, make_totals({500}));
  }
  builder_.snapshot().processes = {{.process = {.pid = 1}, .owner = {.comm = "p"}},
                                   {.process = {.pid = 2}, .owner = {.comm = "p"}},
                                   {.process = {.pid = 3}, .owner = {.comm = "q"}}};
  builder_.snapshot().in_flight = std::make_shared<const InFlightCalls>(InFlightCalls{
      .calls = {{.function_id = f, .process = {.pid = 1}, .start_mono_ns = 3'000'000'000},
                {.function_id = f, .process = {.pid = 2}, .start_mono_ns = 1'000'000'000},
                {.function_id = g, .process = {.pid = 3}, .start_mono_ns = 4'000'000'000}},
      .look_mono_ns = 5'000'000'000});
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));

  const auto oldest = [&samples](const std::string& function, const std::string& comm) {
    return samples.at(function_sample("gpuperf_function_oldest_in_flight_seconds", function, comm));
  };
  EXPECT_EQ(oldest("f", "p"), 4);
  EXPECT_EQ(oldest("f", "q"), 0);
  EXPECT_EQ(oldest("g", "p"), 0);
  EXPECT_EQ(oldest("g", "q"), 1);
}

TEST_F(PrometheusTest, ShowsTheCoverageOfFunctionsThatWereOutOnly) {
  add_function("f");
  add_function("g");
  add_function("same");
  add_function("same");
  builder_.snapshot().coverage = {1, 0.5, 0.75, 0.25};
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));

  const std::string name = "gpuperf_function_coverage_ratio{category=\"cuda\",function=\"";
  EXPECT_FALSE(samples.contains(name + "f\"}"));
  EXPECT_EQ(samples.at(name + "g\"}"), 0.5);
  EXPECT_EQ(samples.at(name + "same\"}"), 0.25);
}

TEST_F(PrometheusTest, ShowsTheHighestOverheadOfProcessesWithTheSameLabels) {
  builder_.snapshot().overhead = {
      {.owner = {.comm = "a", .pod = "p"},
       .ratio = 0.25,
       .measured = OverheadMeasurement{.ratio = 0.375}},
      {.owner = {.comm = "a", .pod = "p"}, .ratio = 0.5, .hooks_ratio = 0.125, .cupti_ratio = 0.25},
      {.owner = {.comm = "a", .pod = "q"}, .ratio = 0.125}};
  const PrometheusMetrics metrics(board_, drops_, kNoBound, 100);

  const auto samples = parse_samples(scrape(metrics));

  EXPECT_EQ(samples.at("gpuperf_overhead_ratio{pod=\"p\",comm=\"a\"}"), 0.5);
  EXPECT_EQ(samples.at("gpuperf_overhead_ratio{pod=\"q\",comm=\"a\"}"), 0.125);
  EXPECT_EQ(samples.at("gpuperf_overhead_measured_ratio{pod=\"p\",comm=\"a\"}"), 0.375);
  EXPECT_FALSE(samples.contains("gpuperf_overhead_measured_ratio{pod=\"q\",comm=\"a\"}"));
  const std::string part = "gpuperf_overhead_component_ratio{pod=\"p\",comm=\"a\",component=";
  EXPECT_EQ(samples.at(part + "\"probes\"}"), 0.125);
  EXPECT_EQ(samples.at(part + "\"hooks\"}"), 0.125);
  EXPECT_EQ(samples.at(part + "\"cupti\"}"), 0.25);
}

TEST_F(PrometheusTest, FoldsOverheadBeyondTheBoundIntoOther) {
  builder_.snapshot().overhead = {{.owner = {.comm = "a"}, .ratio = 0.25},
                                  {.owner = {.comm = "b"}, .ratio = 0.5},
                                  {.owner = {.comm = "c", .pod = "p"}, .ratio = 0.125}};
  const PrometheusMetrics metrics(board_, drops_, 1, 100);

  const auto samples = parse_samples(scrape(metrics));

  EXPECT_EQ(samples.at("gpuperf_overhead_ratio{pod=\"\",comm=\"a\"}"), 0.25);
  EXPECT_EQ(samples.at("gpuperf_overhead_ratio{pod=\"\",comm=\"other\"}"), 0.5);
  EXPECT_EQ(samples.at("gpuperf_dropped_total{stage=\"metrics\",reason=\"series_full\"}"), 2);
}

}  // namespace
}  // namespace gpuperf
