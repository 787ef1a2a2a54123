#include "daemon/view/timeline.h"

#include "daemon/view/trace_counters.h"
#include "tests/fakes/captures/example_capture.h"
#include "tests/unit/matchers.h"
#include "tests/unit/view/capture_builder.h"

namespace gpuperf {
namespace {

using testing::make_example_capture;

constexpr uint64_t kWindowNs = 5'000'000'000'123;

const TraceTrack& find_track(const Timeline& timeline, std::string_view name) {
  for (const TraceTrack& track : timeline.tracks) {
    if (track.name == name) return track;
  }
  throw std::runtime_error("no track " + std::string(name));
}

TraceSlice slice(uint64_t us, uint64_t length_us, uint32_t index, SliceKind kind,
                 bool is_cut = false) {
  return {kWindowNs + us * 1'000, length_us * 1'000, index, kind, is_cut};
}

TEST(TimelineTest, AThreadsCallsLaunchesAndWaitsNest) {
  const Timeline timeline = make_timeline(make_example_capture());

  EXPECT_THAT(
      find_track(timeline, "python3 (4711)").slices,
      ElementsAre(slice(10, 100, 0, SliceKind::kCall), slice(20, 80, 1, SliceKind::kCall),
                  slice(30, 10, 1, SliceKind::kLaunch),
                  slice(105, 5, 2, SliceKind::kLaunch, true),  // it was 15 long
                  slice(130, 5, 3, SliceKind::kLaunch), slice(170, 5, 7, SliceKind::kLaunch),
                  slice(300, 200, 2, SliceKind::kCall), slice(310, 180, 0, SliceKind::kWait)));
}

TEST(TimelineTest, WorkThatOverlapsOnAStreamGetsATrackBeside) {
  const Timeline timeline = make_timeline(make_example_capture());

  EXPECT_THAT(
      find_track(timeline, "stream 7, context 1, python3 (4711)").slices,
      ElementsAre(slice(40, 60, 1, SliceKind::kWork), slice(120, 20, 2, SliceKind::kWork),
                  slice(180, 30, 5, SliceKind::kWork), slice(700, 50, 8, SliceKind::kWork)));
  EXPECT_THAT(find_track(timeline, "stream 7, context 1, python3 (4711) +1").slices,
              ElementsAre(slice(200, 30, 6, SliceKind::kWork)));
}

TEST(TimelineTest, NodesLieWithinTheirGraph) {
  Capture capture = make_example_capture();
  capture.work = {{.start_mono_ns = kWindowNs,
                   .duration_ns = 100'000,
                   .kind = WorkKind::kGraph,
                   .stream = 0,
                   .graph_id = 1},
                  {.start_mono_ns = kWindowNs + 10'000,
                   .duration_ns = 90'000,
                   .kernel = 0,
                   .stream = 0,
                   .graph_id = 1}};

  const Timeline timeline = make_timeline(capture);

  EXPECT_THAT(find_track(timeline, "stream 7, context 1, python3 (4711)").slices,
              ElementsAre(slice(0, 100, 0, SliceKind::kWork), slice(10, 90, 1, SliceKind::kWork)));
}

TEST(TimelineTest, StepsHaveATrackBesideTheirThread) {
  Capture capture = make_example_capture();
  capture.steps = {{.start_mono_ns = kWindowNs + 10'000,
                    .duration_ns = 120'000,
                    .thread = 0,
                    .phase = StepPhase::kPrefill,
                    .tokens = {37, StepQuality::kExact}},
                   {.start_mono_ns = kWindowNs + 200'000, .duration_ns = 50'000, .thread = 0},
                   {.start_mono_ns = kWindowNs + 300'000, .duration_ns = 1'000}};

  const Timeline timeline = make_timeline(capture);

  const TraceTrack& track = find_track(timeline, "steps of python3 (4711)");
  EXPECT_THAT(track.slices, ElementsAre(slice(10, 120, 0, SliceKind::kStep),
                                        slice(200, 50, 1, SliceKind::kStep)));
  EXPECT_EQ(track.group, find_track(timeline, "python3 (4711)").group);
  EXPECT_EQ(make_slice_name(capture, track.slices[0]), "prefill, 37 tokens");
  EXPECT_EQ(make_slice_name(capture, track.slices[1]), "step");
  EXPECT_EQ(find_track(timeline, "steps of unknown threads").slices.size(), 1u);
}

TEST(TimelineTest, BeginsWithTheEarliestEvent) {
  EXPECT_EQ(make_timeline(make_example_capture()).start_mono_ns, kWindowNs - 50'000);
  Capture capture;
  capture.start_mono_ns = 7;
  EXPECT_EQ(make_timeline(capture).start_mono_ns, 7u);
}

TEST(TimelineTest, ProcessesAndThreadsOfOneNumberAreKeptApart) {
  Capture capture;
  capture.processes = {{{10, 1}, {}, true}, {{10, 2}, {}, true}, {{0, 0}, {}, true}};
  capture.threads = {{0, 10, "a"}, {1, 10, "b"}, {2, 0, "c"}};

  const Timeline timeline = make_timeline(capture);

  ASSERT_EQ(timeline.groups.size(), 3u);
  ASSERT_EQ(timeline.tracks.size(), 3u);
  EXPECT_EQ(timeline.groups[0].id, 10u);
  EXPECT_EQ(timeline.tracks[0].id, 10u);
  EXPECT_THAT((std::array{timeline.groups[1].id, timeline.groups[2].id}),
              ElementsAre(5'000'000, 5'000'001));
  EXPECT_THAT((std::array{timeline.tracks[1].id, timeline.tracks[2].id}),
              ElementsAre(6'000'000, 6'000'001));
}

TEST(TimelineTest, CountsQueuesAndBusyDevices) {
  const Timeline timeline = make_timeline(make_example_capture());

  // The hostile process's work began before its call: it never queued.
  ASSERT_EQ(timeline.counters.size(), 5u);
  EXPECT_EQ(timeline.counters[1].name, "GPU busy percent");
  EXPECT_THAT(timeline.counters[1].steps,
              ElementsAre(QueueStep{kWindowNs + 150'000, 100}, QueueStep{kWindowNs + 152'000, 0}));
  EXPECT_EQ(timeline.counters[3].name, "queue depth: stream 13, context 1, python3 (4711)");
  // Launched before the window, begun at 5; launched at 170, begun at 250.
  EXPECT_THAT(timeline.counters[3].steps,
              ElementsAre(QueueStep{kWindowNs, 1}, QueueStep{kWindowNs + 5'000, 0},
                          QueueStep{kWindowNs + 170'000, 1}, QueueStep{kWindowNs + 250'000, 0}));
}

TEST(TimelineTest, ShowsHardwareCountersWithinTheWindowOfGpusNobodyUsedToo) {
  Capture capture = testing::CaptureBuilder().made;
  const auto add = [&](uint8_t gpu, uint64_t start_ns, uint64_t end_ns, uint64_t millionths) {
    GpuCounterRecord record{.uuid = {gpu},
                            .gpu = gpu,
                            .window = {.start_mono_ns = static_cast<int64_t>(start_ns),
                                       .end_mono_ns = static_cast<int64_t>(end_ns)}};
    record.window.values[static_cast<size_t>(GpuCounter::kTensor)] = millionths;
    capture.gpu_counters.push_back(record);
  };
  const uint64_t start_ns = capture.start_mono_ns;
  add(1, start_ns - 500'000, start_ns + 100, 835'000);
  add(2, start_ns, start_ns + 100, 4'900);
  capture.gpu_counters[1].gpu_instance = 3;
  add(1, start_ns + 100, start_ns + 200, 0);
  add(1, start_ns + 300, start_ns + 2'000'000'000, 1'000'000);

  const Timeline timeline = make_timeline(capture);

  ASSERT_EQ(timeline.counters.size(), 2u);
  EXPECT_EQ(timeline.counters[0].name, "tensor pipe percent");
  EXPECT_EQ(timeline.groups[timeline.counters[0].group].device, 0u);
  EXPECT_THAT(timeline.counters[0].steps,
              ElementsAre(QueueStep{start_ns, 84}, QueueStep{start_ns + 100, 0},
                          QueueStep{start_ns + 200, 0}, QueueStep{start_ns + 300, 100}));
  EXPECT_EQ(timeline.counters[1].name, "tensor pipe percent, instance 3");
  EXPECT_THAT(timeline.groups[timeline.counters[1].group].name, StartsWith("GPU 2 GPU-02"));
}

TEST(TimelineTest, CountersOfManyChangesAreThinnedToTheDeepestAndTheShare) {
  Capture capture = make_example_capture();
  capture.launches.clear();
  capture.work.clear();
  capture.duration_ns = 20'000'000;
  for (uint32_t i = 0; i < 10'000; ++i) {  // half of the time busy, one in the queue for a tenth
    capture.launches.push_back({.start_mono_ns = kWindowNs + i * 2'000 + 800, .thread = 0});
    capture.work.push_back({.start_mono_ns = kWindowNs + i * 2'000 + 1'000,
                            .duration_ns = 1'000,
                            .kernel = 0,
                            .stream = 0,
                            .launch = i});
  }

  const std::vector<TraceCounter> counters = make_timeline(capture).counters;

  ASSERT_EQ(counters.size(), 2u);
  for (const TraceCounter& counter : counters) {
    EXPECT_LE(counter.steps.size(), 2 * kBins) << counter.name;
  }
  uint64_t sum = 0;
  for (const QueueStep& step : counters[0].steps) {
    EXPECT_NEAR(step.depth, 50, 6);
    sum += step.depth;
  }
  EXPECT_GT(sum, 0u);
  uint32_t deepest = 0;
  for (const QueueStep& step : counters[1].steps) deepest = std::max(deepest, step.depth);
  EXPECT_EQ(deepest, 1u);
}

}  // namespace
}  // namespace gpuperf
