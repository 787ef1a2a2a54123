#include "daemon/state/gpu_state.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

using std::chrono::seconds;

constexpr uint64_t kOpenedNs = 999 * uint64_t{kSecondNs};
const GpuUuid kGpu{0xaa, 0xbb};

constexpr uint32_t kEverything = GPUPERF_SESSION_LEVEL_KERNELS | GPUPERF_SESSION_LEVEL_GRAPHS |
                                 GPUPERF_SESSION_LEVEL_APIS | GPUPERF_SESSION_LEVEL_COPIES;

SessionOpened make_opened(uint64_t id, ProcessKey process = kProcess) {
  return {.session_id = id, .process = process, .owner = kPython, .mono_ns = kNowNs};
}

// With the dictionary that the records below use.
SessionBatch make_batch(uint64_t session_id = 1) {
  return {.session_id = session_id,
          .names = {{.id = 1, .text = "add"}, {.id = 2, .text = "multiply"}},
          .places = {{.id = 1, .device = 0, .stream = 7, .device_uuid = kGpu}}};
}

KernelRecord make_kernel(uint32_t correlation_id, uint64_t start_ns, uint64_t duration_ns,
                         uint32_t name_id = 1) {
  return {.start_mono_ns = start_ns,
          .duration_ns = duration_ns,
          .correlation_id = correlation_id,
          .name_id = name_id,
          .place_id = 1};
}

ApiRecord make_api(uint32_t correlation_id, uint64_t start_ns, uint64_t duration_ns) {
  return {.start_mono_ns = start_ns, .duration_ns = duration_ns, .correlation_id = correlation_id};
}

DurationTotals make_durations(const std::vector<uint64_t>& durations_ns) {
  DurationTotals totals;
  for (const uint64_t duration_ns : durations_ns) add_duration(totals, duration_ns);
  return totals;
}

// Statistics of the sessions whose events it gets.
struct FollowedState {
  explicit FollowedState(const GpuProcesses::Limits& limits) : statistics(limits, drops) {
    statistics.follow(sessions);
  }

  void apply(const SessionEvent& event) { sessions.apply(event, kNowNs); }
  void expire(int64_t now_mono_ns) {
    sessions.expire(now_mono_ns);
    statistics.expire(now_mono_ns);
  }
  GpuReport report() const {
    GpuReport report;
    sessions.fill(report);
    statistics.fill(report);
    return report;
  }

  DropCounters drops;
  SessionMemory memory{drops};
  SessionRegistry sessions{{}, drops, memory};
  GpuStatistics statistics;
};

class GpuStateTest : public ::testing::Test {
 protected:
  GpuStateTest() { apply(make_opened(1)); }

  GpuReport report() const { return state_.report(); }
  void apply(const SessionEvent& event) { state_.apply(event); }
  void set_level(uint32_t level, uint32_t sample_every = 1) {
    apply(SessionStatus{.session_id = 1, .level = level, .sample_every = sample_every});
  }

  FollowedState state_{{.keep_exited = seconds(600)}};
  const DropCounters& drops_ = state_.drops;
};

TEST_F(GpuStateTest, AddsUpLaunchesPerKernel) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5'000), make_kernel(2, kOpenedNs + 10'000, 7'000),
                   make_kernel(3, kOpenedNs + 20'000, 1'000, 2)};

  apply(batch);

  const GpuReport report = this->report();
  ASSERT_EQ(report.kernels.size(), 2u);
  const KernelRow& add = *report.kernels[0];
  EXPECT_EQ(add.name->full, "add");
  EXPECT_EQ(add.process, kProcess);
  EXPECT_EQ(add.owner, kPython);
  EXPECT_EQ(add.totals,
            (KernelTotals{.duration = make_durations({5'000, 7'000}), .estimated_launches = 2}));
  EXPECT_EQ(report.kernels[1]->totals.duration, make_durations({1'000}));
}

TEST_F(GpuStateTest, MeasuresLaunchLatencyAndQueueDelay) {
  SessionBatch batch = make_batch();
  batch.apis = {make_api(1, kOpenedNs, 3'000), make_api(2, kOpenedNs, 30'000)};
  batch.kernels = {make_kernel(1, kOpenedNs + 10'000, 5), make_kernel(2, kOpenedNs + 20'000, 5)};

  apply(batch);

  const KernelTotals totals = report().kernels[0]->totals;
  EXPECT_EQ(totals.launch_latency, make_durations({10'000, 20'000}));
  EXPECT_EQ(totals.queue_delay, make_durations({7'000, 0}));  // one began before its call returned
}

TEST_F(GpuStateTest, WaitsForNoWorkOfACallThatIsKnownToHaveNone) {
  SessionBatch batch = make_batch();
  batch.apis = {make_api(1, kOpenedNs, 3'000)};
  batch.apis[0].has_work = false;
  batch.kernels = {make_kernel(1, kOpenedNs + 10'000, 5)};

  apply(batch);

  EXPECT_EQ(report().sessions[0]->join, JoinTotals{});
}

TEST_F(GpuStateTest, JoinsAcrossBatchesInEitherOrder) {
  SessionBatch kernels = make_batch();
  kernels.kernels = {make_kernel(1, kOpenedNs + 10'000, 5)};
  SessionBatch calls{.session_id = 1, .apis = {make_api(1, kOpenedNs, 3'000)}};

  apply(kernels);
  apply(calls);

  EXPECT_EQ(report().kernels[0]->totals.launch_latency, make_durations({10'000}));
  EXPECT_EQ(report().sessions[0]->join, JoinTotals{.joined = 1});
}

TEST_F(GpuStateTest, CountsAKernelBeforeItsCallAndAveragesItInNowhere) {
  SessionBatch batch = make_batch();
  batch.apis = {make_api(1, kOpenedNs + 500, 3'000), make_api(2, kOpenedNs + 200, 3'000)};
  batch.kernels = {make_kernel(1, kOpenedNs, 5), make_kernel(2, kOpenedNs, 5)};

  apply(batch);

  EXPECT_EQ(report().kernels[0]->totals.launch_latency, DurationTotals());
  EXPECT_EQ(report().sessions[0]->join, (JoinTotals{.clock_violations = 2, .clock_worst_ns = 500}));
}

TEST_F(GpuStateTest, KeepsSessionsApartThatUseOneId) {
  const ProcessKey other{.pid = 72, .start_boot_ns = 6};
  apply(make_opened(2, other));
  SessionBatch first = make_batch(1);
  first.apis = {make_api(1, kOpenedNs, 10)};
  SessionBatch second = make_batch(2);
  second.kernels = {make_kernel(1, kOpenedNs + 100, 5)};

  apply(first);
  apply(second);

  const GpuReport report = this->report();
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.kernels[0]->process, other);
  EXPECT_EQ(report.kernels[0]->totals.launch_latency, DurationTotals());
}

TEST_F(GpuStateTest, CountsFailedCallsAndDoesNotWaitForTheirWork) {
  SessionBatch batch = make_batch();
  batch.apis = {make_api(1, kOpenedNs, 10), make_api(2, kOpenedNs, 10)};
  batch.apis[1].return_value = 2;

  set_level(kEverything);
  apply(batch);
  state_.expire(kNowNs + 61 * kSecondNs);

  EXPECT_EQ(report().processes[0]->totals.api_calls, 2u);
  EXPECT_EQ(report().processes[0]->totals.api_errors, 1u);
  EXPECT_EQ(drops_.get(DropCause::kJoinLaunchesExpired), 1u);
}

TEST_F(GpuStateTest, WaitsForNoCallsWhereNoneAreSent) {
  set_level(GPUPERF_SESSION_LEVEL_KERNELS);
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5)};

  apply(batch);
  state_.expire(kNowNs + 61 * kSecondNs);

  EXPECT_EQ(drops_.get(DropCause::kJoinWorkExpired), 0u);
}

TEST_F(GpuStateTest, SaysHowManyLaunchesASampleStandsFor) {
  set_level(kEverything, 10);
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5), make_kernel(2, kOpenedNs + 10, 5)};

  apply(batch);
  set_level(kEverything, 1);
  apply(SessionBatch{.session_id = 1, .kernels = {make_kernel(3, kOpenedNs + 20, 5)}});

  const KernelTotals totals = report().kernels[0]->totals;
  EXPECT_EQ(get_launches(totals), 3u);
  EXPECT_EQ(totals.estimated_launches, 21u);
  EXPECT_DOUBLE_EQ(get_coverage(totals), 3.0 / 21);
}

TEST_F(GpuStateTest, AddsUpWholeGraphsAndTheirLatency) {
  SessionBatch batch = make_batch();
  batch.apis = {make_api(1, kOpenedNs, 100)};
  batch.graphs = {{.start_mono_ns = kOpenedNs + 4'000,
                   .duration_ns = 9'000,
                   .correlation_id = 1,
                   .graph_id = 3,
                   .place_id = 1}};

  apply(batch);

  EXPECT_EQ(report().processes[0]->totals.graphs,
            (std::vector<GraphTotals>{{.graph_id = 3,
                                       .duration = make_durations({9'000}),
                                       .launch_latency = make_durations({4'000})}}));
  EXPECT_EQ(report().activity[0].graph_ns, 9'000u);
}

TEST_F(GpuStateTest, TakesTheFirstNodeOfAGraphForItsStart) {
  SessionBatch batch = make_batch();
  batch.apis = {make_api(1, kOpenedNs, 100)};
  for (const uint64_t start_ns : {kOpenedNs + 9'000, kOpenedNs + 5'000}) {
    batch.kernels.push_back(make_kernel(1, start_ns, 5));
    batch.kernels.back().graph_id = 3;
    batch.kernels.back().flags = GPUPERF_KERNEL_FROM_GRAPH;
  }

  apply(batch);
  state_.expire(kNowNs + 3 * kSecondNs);

  const GpuReport report = this->report();
  EXPECT_EQ(report.processes[0]->totals.graphs,
            (std::vector<GraphTotals>{{.graph_id = 3, .launch_latency = make_durations({5'000})}}));
  EXPECT_EQ(report.kernels[0]->totals.graph_launches, 2u);
  EXPECT_EQ(report.kernels[0]->totals.launch_latency, DurationTotals());
  EXPECT_EQ(report.sessions[0]->join, JoinTotals{.joined = 1});
}

TEST_F(GpuStateTest, CountsGraphsBeyondItsBoundTogether) {
  SessionBatch batch = make_batch();
  for (uint32_t id = 1; id <= GpuProcesses::kMaxGraphs + 2; ++id) {
    batch.graphs.push_back({.start_mono_ns = kOpenedNs,
                            .duration_ns = 1,
                            .correlation_id = id,
                            .graph_id = id,
                            .place_id = 1});
  }

  apply(batch);

  const auto& graphs = report().processes[0]->totals.graphs;
  ASSERT_EQ(graphs.size(), GpuProcesses::kMaxGraphs + 1);
  EXPECT_EQ(graphs.back().graph_id, 0u);
  EXPECT_EQ(graphs.back().duration.histogram.count(), 2u);
  EXPECT_EQ(drops_.get(DropCause::kGpuGraphsFull), 2u);
}

TEST_F(GpuStateTest, JoinsNoKernelThatAKernelLaunched) {
  SessionBatch batch = make_batch();
  batch.apis = {make_api(1, kOpenedNs, 100)};
  batch.kernels = {make_kernel(1, kOpenedNs + 900, 5, 2)};
  batch.kernels[0].flags = GPUPERF_KERNEL_DEVICE_LAUNCHED;

  apply(batch);

  EXPECT_EQ(report().kernels[0]->totals.launch_latency, DurationTotals());
}

TEST_F(GpuStateTest, AddsUpCopiesByDirectionAndMemory) {
  const CopyRecord to_device{.start_mono_ns = kOpenedNs,
                             .duration_ns = 100,
                             .bytes = 4'096,
                             .place_id = 1,
                             .direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                             .source_memory = GPUPERF_MEMORY_PAGEABLE,
                             .target_memory = GPUPERF_MEMORY_DEVICE};
  CopyRecord pinned = to_device;
  pinned.source_memory = GPUPERF_MEMORY_PINNED;
  SessionBatch batch = make_batch();
  batch.copies = {pinned, to_device, to_device};

  apply(batch);

  const GpuProcessTotals totals = report().processes[0]->totals;
  EXPECT_EQ(totals.copies, (std::vector<CopyTotals>{{.direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                                                     .source_memory = GPUPERF_MEMORY_PAGEABLE,
                                                     .target_memory = GPUPERF_MEMORY_DEVICE,
                                                     .bytes = 8'192,
                                                     .duration = make_durations({100, 100})},
                                                    {.direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                                                     .source_memory = GPUPERF_MEMORY_PINNED,
                                                     .target_memory = GPUPERF_MEMORY_DEVICE,
                                                     .bytes = 4'096,
                                                     .duration = make_durations({100})}}));
}

TEST_F(GpuStateTest, ShowsLaunchesAndSamplesOfKernels) {
  SessionBatch batch = make_batch();
  batch.places[0].sm = {.count = 132, .threads = 2'048};
  batch.shapes = {{.id = 1, .grid = {4, 1, 1}, .block = {64, 1, 1}, .registers_per_thread = 40}};
  batch.kernels = {make_kernel(1, kNowNs - 1'000, 100)};
  batch.kernels[0].shape_id = 1;
  batch.stalls = {{.name_id = 1,
                   .pc_offset_bytes = 0x10,
                   .cubin_crc = 7,
                   .counts = {{.stall = GPUPERF_STALL_wait, .samples = 5, .idle_samples = 1}}},
                  {.name_id = 9, .counts = {{.stall = GPUPERF_STALL_wait, .samples = 5}}}};
  apply(batch);
  EXPECT_EQ(report().kernels[0]->stalls, nullptr);  // their time has not been told

  batch = {.session_id = 1,
           .samplings = {{.start_mono_ns = kNowNs - 900,
                          .duration_ns = 800,
                          .samples = 8,
                          .dropped_samples = 1,
                          .other_samples = 2,
                          .place_id = 1,
                          .was_full = true}}};
  apply(batch);

  const GpuReport now = report();
  ASSERT_EQ(now.kernels.size(), 1u);
  EXPECT_EQ(now.kernels[0]->shape.registers_per_thread, 40u);
  EXPECT_EQ(now.kernels[0]->sm.count, 132u);
  ASSERT_NE(now.kernels[0]->stalls, nullptr);
  EXPECT_EQ(now.kernels[0]->stalls->samples, 5u);
  EXPECT_EQ(now.kernels[0]->stalls->stalls[GPUPERF_STALL_wait], (StallCount{5, 1}));
  EXPECT_EQ(now.sessions[0]->sampling, (SamplingTotals{800, 8, 1, 2, 1}));
  EXPECT_EQ(drops_.get(DropCause::kSessionBadIds), 1u);
}

TEST_F(GpuStateTest, ShowsLinesOnceTheirModuleHasCome) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kNowNs - 1'000, 100)};
  batch.stalls = {{.name_id = 1,
                   .pc_offset_bytes = 0x10,
                   .cubin_crc = 7,
                   .counts = {{.stall = GPUPERF_STALL_wait, .samples = 5}}}};
  batch.samplings = {{.start_mono_ns = kNowNs - 900, .duration_ns = 800, .place_id = 1}};
  apply(batch);
  const auto find = [&](LineFate fate) {
    return report().kernels[0]->stalls->unlined_samples[static_cast<size_t>(fate)];
  };
  EXPECT_EQ(find(LineFate::kWaiting), 5u);

  CubinLines lines{.cubin_crc = 7,
                   .texts = {"a.cu"},
                   .places = {{.file = 0, .line = 3, .outer_file = 0, .outer_line = 3}},
                   .rows = {{0, 0}},
                   .functions = {{.name = batch.names[0].text, .row_count = 1}}};
  apply(SessionBatch{.session_id = 1, .cubins = {lines}});

  EXPECT_EQ(find(LineFate::kWaiting), 0u);
  ASSERT_EQ(report().kernels[0]->stalls->lines.size(), 1u);
  EXPECT_EQ(report().kernels[0]->stalls->lines[0].source.line, 3u);

  // The first one stays: another session of the process may send it again.
  lines.places[0].line = 4;
  apply(SessionBatch{.session_id = 1, .cubins = {lines}});
  EXPECT_EQ(report().kernels[0]->stalls->lines[0].source.line, 3u);
}

TEST_F(GpuStateTest, SaysThatThereIsNoRoomForLines) {
  SessionBatch batch = make_batch();
  batch.stalls = {
      {.name_id = 1, .cubin_crc = 7, .counts = {{.stall = GPUPERF_STALL_wait, .samples = 5}}}};
  batch.samplings = {{.start_mono_ns = kNowNs - 900, .duration_ns = 800, .place_id = 1}};
  batch.cubins = {{.cubin_crc = 7}};
  batch.cubins[0].rows.resize(SessionMemory::kDefaultBytes / 8 / sizeof(CubinLines::Row));
  apply(batch);
  EXPECT_EQ(report().kernels[0]->stalls->unlined_samples[static_cast<size_t>(LineFate::kNoRoom)],
            5u);
  EXPECT_EQ(drops_.get(DropCause::kSessionMemoryFull), 1u);
}

TEST_F(GpuStateTest, ShowsAKernelThatWasOnlySampled) {
  SessionBatch batch = make_batch();
  batch.stalls = {{.name_id = 2, .counts = {{.stall = GPUPERF_STALL_wait, .samples = 5}}}};
  batch.samplings = {{.start_mono_ns = kNowNs - 900, .duration_ns = 800, .place_id = 1}};
  apply(batch);
  ASSERT_EQ(report().kernels.size(), 1u);
  EXPECT_EQ(report().kernels[0]->name->brief, "multiply");
}

TEST_F(GpuStateTest, AddsUpWaitsAndOverheadByType) {
  SessionBatch batch = make_batch();
  batch.syncs = {{.duration_ns = 700, .type = GPUPERF_SYNC_STREAM},
                 {.duration_ns = 1, .type = GPUPERF_SYNC_COUNT}};
  batch.overheads = {{.duration_ns = 30, .type = GPUPERF_OVERHEAD_BUFFER_FLUSH},
                     {.duration_ns = 40, .type = GPUPERF_OVERHEAD_BUFFER_FLUSH},
                     {.duration_ns = 1, .type = GPUPERF_OVERHEAD_COUNT}};

  apply(batch);

  GpuProcessTotals expected;
  expected.syncs[GPUPERF_SYNC_STREAM] = make_durations({700});
  expected.overheads[GPUPERF_OVERHEAD_BUFFER_FLUSH] = {.count = 2, .total_ns = 70};
  EXPECT_EQ(report().processes[0]->totals, expected);
  EXPECT_EQ(drops_.get(DropCause::kSessionBadIds), 2u);
}

TEST_F(GpuStateTest, MergesStreamsAndProcessesInTheBusyTimeOfAGpu) {
  const ProcessKey other{.pid = 72, .start_boot_ns = 6};
  apply(make_opened(2, other));
  SessionBatch first = make_batch(1);
  first.kernels = {make_kernel(1, kOpenedNs, 1'000)};
  SessionBatch second = make_batch(2);
  second.kernels = {make_kernel(1, kOpenedNs + 500, 1'000)};
  second.copies = {{.start_mono_ns = kOpenedNs + 1'400, .duration_ns = 200, .place_id = 1}};

  apply(first);
  apply(second);

  EXPECT_EQ(report().activity,
            (std::vector<GpuActivity>{{.uuid = kGpu,
                                       .busy_ns = 1'600,
                                       .without_nccl_ns = 1'600,
                                       .kernel_ns = 1'500,
                                       .copy_ns = 200,
                                       .since_mono_ns = static_cast<int64_t>(kOpenedNs),
                                       .newest_mono_ns = static_cast<int64_t>(kOpenedNs) + 1'600,
                                       .processes = {kProcess, other}}}));
}

TEST_F(GpuStateTest, TellsTimeInWhichOnlyKernelsOfNcclRan) {
  SessionBatch batch = make_batch();
  batch.names.push_back({.id = 3, .text = "_Z35ncclDevKernel_AllReduce_Sum_f32_RINGv"});
  batch.kernels = {make_kernel(1, kOpenedNs, 1'000), make_kernel(2, kOpenedNs + 800, 1'000, 3)};
  apply(batch);
  EXPECT_EQ(report().activity[0].busy_ns, 1'800u);
  EXPECT_EQ(report().activity[0].without_nccl_ns, 1'000u);

  batch = make_batch();
  batch.kernels = {make_kernel(3, kOpenedNs + 1'500, 100)};
  batch.copies = {{.start_mono_ns = kOpenedNs + 1'700, .duration_ns = 200, .place_id = 1}};
  apply(batch);
  EXPECT_EQ(report().activity[0].busy_ns, 1'900u);
  EXPECT_EQ(report().activity[0].without_nccl_ns, 1'300u);
}

TEST_F(GpuStateTest, FollowsAGpuWithoutUuidByProcessAndOrdinal) {
  SessionBatch batch = make_batch();
  batch.places = {{.id = 1, .device = 3}};
  batch.kernels = {make_kernel(1, kOpenedNs, 1'000)};

  apply(batch);

  const GpuActivity activity = report().activity.at(0);
  EXPECT_EQ(activity.process, kProcess);
  EXPECT_EQ(activity.ordinal, 3u);
}

TEST_F(GpuStateTest, BelievesNoWorkOfTheFuture) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kNowNs + 2 * kSecondNs, 5), make_kernel(2, kOpenedNs, UINT64_MAX),
                   make_kernel(3, kOpenedNs, 10)};

  apply(batch);

  EXPECT_EQ(report().activity[0].busy_ns, 10u);
  EXPECT_EQ(drops_.get(DropCause::kGpuFutureRecords), 2u);
}

TEST_F(GpuStateTest, CountsLateWork) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 10), make_kernel(2, kOpenedNs - 20 * kSecondNs, 10)};

  apply(batch);

  EXPECT_EQ(report().activity[0].busy_ns, 10u);
  EXPECT_EQ(report().activity[0].late_ns, 10u);
  EXPECT_EQ(drops_.get(DropCause::kGpuLateRecords), 1u);
}

TEST_F(GpuStateTest, FollowsABoundedNumberOfGpus) {
  SessionBatch batch = make_batch();
  for (uint32_t id = 2; id < GpuActivities::kMaxDevices + 3; ++id) {
    Place place{.id = id};
    place.device_uuid[0] = static_cast<uint8_t>(id);
    place.device_uuid[1] = 1;
    batch.places.push_back(place);
  }

  apply(batch);

  EXPECT_EQ(drops_.get(DropCause::kGpuDevicesFull), 2u);
}

TEST_F(GpuStateTest, FollowsMemoryAndSaysWhatItMissed) {
  SessionBatch batch = make_batch();
  batch.memory = {{.address = 0x10, .bytes = 100, .place_id = 1, .memory = GPUPERF_MEMORY_DEVICE}};
  apply(batch);
  EXPECT_TRUE(report().processes[0]->memory_complete);
  EXPECT_EQ(report().processes[0]->memory.at(0).used_bytes, 100u);

  apply(SessionBatch{.session_id = 1, .gaps = {{.cause = GPUPERF_SESSION_CAUSE_CONTROL}}});

  EXPECT_FALSE(report().processes[0]->memory_complete);
}

TEST_F(GpuStateTest, LeavesOutRecordsWhoseIdsWereNeverAnnounced) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5, 3), make_kernel(1, kOpenedNs, 5, UINT32_MAX)};
  batch.kernels.push_back(make_kernel(1, kOpenedNs, 5));
  batch.kernels.back().place_id = 9;
  batch.copies = {{.start_mono_ns = kOpenedNs, .place_id = 0}};
  batch.names.push_back({.id = UINT32_MAX, .text = "far out"});
  batch.places.push_back({.id = UINT32_MAX});

  apply(batch);

  EXPECT_TRUE(report().kernels.empty());
  EXPECT_EQ(drops_.get(DropCause::kSessionBadIds), 6u);
}

TEST_F(GpuStateTest, CountsKernelsWhoseNameHadNoRoomAsOther) {
  SessionBatch batch = make_batch();
  batch.names.push_back({.id = 3, .text = "", .is_cut = true});
  batch.kernels = {make_kernel(1, kOpenedNs, 5, 3)};

  apply(batch);

  EXPECT_EQ(report().kernels.at(0)->name, KernelTexts::get_other());
}

TEST_F(GpuStateTest, CountsRecordsOfASessionThatHasEnded) {
  apply(SessionClosed{.session_id = 1, .mono_ns = kNowNs});
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5)};

  apply(batch);

  EXPECT_EQ(drops_.get(DropCause::kSessionUnknown), 1u);
}

TEST_F(GpuStateTest, NeverChangesRowsItHandedOut) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5), make_kernel(2, kOpenedNs + 100, 5, 2)};
  apply(batch);
  const GpuReport before = report();

  apply(SessionBatch{.session_id = 1, .kernels = {make_kernel(3, kOpenedNs + 200, 5)}});
  const GpuReport after = report();

  EXPECT_EQ(get_launches(before.kernels[0]->totals), 1u);
  EXPECT_EQ(get_launches(after.kernels[0]->totals), 2u);
  EXPECT_EQ(before.kernels[1], after.kernels[1]);
}

TEST_F(GpuStateTest, KeepsAProcessForAWhileAfterItsSession) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5)};
  batch.memory = {{.address = 1, .bytes = 10, .place_id = 1}};
  apply(batch);

  apply(SessionClosed{.session_id = 1, .mono_ns = kNowNs});

  EXPECT_TRUE(report().processes[0]->exited);
  EXPECT_TRUE(report().kernels[0]->exited);
  EXPECT_EQ(report().processes[0]->memory[0].used_bytes, 0u);
  EXPECT_TRUE(report().activity[0].processes.empty());
  state_.expire(kNowNs + 599 * kSecondNs);
  EXPECT_EQ(report().kernels.size(), 1u);
}

TEST_F(GpuStateTest, KeepsTheSumsOfForgottenProcesses) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5)};
  batch.syncs = {{.duration_ns = 700, .type = GPUPERF_SYNC_STREAM}};
  apply(batch);
  const GpuReport before = report();

  apply(SessionClosed{.session_id = 1, .mono_ns = kNowNs});
  state_.expire(kNowNs + 600 * kSecondNs);

  const GpuReport after = report();
  EXPECT_TRUE(after.kernels.empty());
  EXPECT_TRUE(after.processes.empty());
  ASSERT_EQ(after.retired_kernels.size(), 1u);
  EXPECT_EQ(after.retired_kernels[0]->name, before.kernels[0]->name);
  EXPECT_EQ(after.retired_kernels[0]->owner, kPython);
  EXPECT_EQ(after.retired_kernels[0]->process, ProcessKey());
  EXPECT_EQ(after.retired_kernels[0]->totals, before.kernels[0]->totals);
  ASSERT_EQ(after.retired_processes.size(), 1u);
  EXPECT_EQ(after.retired_processes[0]->totals, before.processes[0]->totals);
  EXPECT_EQ(after.activity[0].busy_ns, before.activity[0].busy_ns);
}

TEST_F(GpuStateTest, GoesOnWithAProcessThatComesBack) {
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5)};
  apply(batch);
  apply(SessionClosed{.session_id = 1, .mono_ns = kNowNs});

  apply(make_opened(2));
  batch.session_id = 2;
  apply(batch);
  state_.expire(kNowNs + 700 * kSecondNs);

  const GpuReport report = this->report();
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(get_launches(report.kernels[0]->totals), 2u);
  EXPECT_FALSE(report.kernels[0]->exited);
  EXPECT_FALSE(report.processes[0]->memory_complete);
}

TEST(GpuStateBoundsTest, CountsKernelsWithoutARowAsOther) {
  FollowedState state({.max_kernel_rows = 1});
  state.apply(make_opened(1));
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5), make_kernel(2, kOpenedNs + 100, 5, 2)};

  state.apply(batch);

  const GpuReport report = state.report();
  ASSERT_EQ(report.kernels.size(), 2u);
  EXPECT_EQ(report.kernels[1]->name, KernelTexts::get_other());
  EXPECT_EQ(get_launches(report.kernels[1]->totals), 1u);
  EXPECT_EQ(state.drops.get(DropCause::kGpuKernelsFull), 1u);
}

TEST(GpuStateBoundsTest, ForgetsEndedProcessesForTheRowsOfRunningOnes) {
  FollowedState state({.max_kernel_rows = 2});
  state.apply(make_opened(1));
  state.apply(make_batch(1));
  state.apply(SessionClosed{.session_id = 1, .mono_ns = kNowNs});

  state.apply(make_opened(2, {.pid = 72}));
  SessionBatch batch = make_batch(2);
  batch.kernels = {make_kernel(1, kOpenedNs, 5), make_kernel(2, kOpenedNs + 100, 5, 2)};
  state.apply(batch);

  const GpuReport report = state.report();
  EXPECT_EQ(report.kernels.size(), 2u);
  EXPECT_EQ(report.processes.size(), 1u);
  EXPECT_EQ(state.drops.get(DropCause::kGpuProcessesFull), 1u);
  EXPECT_EQ(state.drops.get(DropCause::kGpuKernelsFull), 0u);
}

TEST(GpuStateBoundsTest, KeepsABoundedNumberOfEndedProcesses) {
  FollowedState state({.max_exited_processes = 2});
  for (uint32_t id = 1; id <= 3; ++id) {
    state.apply(make_opened(id, {.pid = id}));
    state.apply(SessionClosed{.session_id = id, .mono_ns = kNowNs});
  }

  const GpuReport report = state.report();
  ASSERT_EQ(report.processes.size(), 2u);
  EXPECT_EQ(report.processes[0]->process.pid, 2u);
  EXPECT_EQ(state.drops.get(DropCause::kGpuProcessesFull), 1u);
}

TEST(GpuStateBoundsTest, FoldsSeriesBeyondTheBoundFromTheirFirstLaunchOn) {
  FollowedState state({.keep_exited = seconds(0), .max_series = 1});
  state.apply(make_opened(1));
  SessionBatch batch = make_batch();
  batch.kernels = {make_kernel(1, kOpenedNs, 5), make_kernel(2, kOpenedNs + 100, 5, 2)};
  state.apply(batch);
  const GpuReport running = state.report();

  state.apply(SessionClosed{.session_id = 1, .mono_ns = kNowNs});
  state.expire(kNowNs);

  const GpuReport ended = state.report();
  EXPECT_FALSE(running.kernels[0]->folded);
  EXPECT_TRUE(running.kernels[1]->folded);
  ASSERT_EQ(ended.retired_kernels.size(), 2u);
  EXPECT_EQ(ended.retired_kernels[0]->name, KernelTexts::get_other());
  EXPECT_EQ(ended.retired_kernels[0]->owner.comm, "other");
  EXPECT_EQ(state.drops.get(DropCause::kGpuSeriesFull), 1u);
}

}  // namespace
}  // namespace gpuperf
