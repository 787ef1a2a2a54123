#include "daemon/capture/trace_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "injector/session_abi.h"

namespace gpuperf {
namespace {

constexpr ProcessKey kRecorded = {.pid = 71, .start_boot_ns = 5'000'000'000};
constexpr uint64_t kRecordedSession = 3;

TraceBatch make_launches(uint64_t count, uint64_t first_ns = 1'000) {
  TraceBatch batch;
  for (uint64_t i = 0; i < count; ++i) {
    batch.launches.push_back(
        {.mono_ns = first_ns + i, .site_id = 9, .process = kRecorded, .tid = 72, .function_id = 4});
  }
  batch.complete_mono_ns = first_ns + count;
  return batch;
}

uint64_t count_events(const TraceWindow& window) {
  uint64_t count = 0;
  for (const TraceWindow::Part& part : window.parts) count += part.events->size();
  return count;
}

class TraceRecorderTest : public ::testing::Test {
 protected:
  TraceRecorderTest() { recorder_.follow(sessions_); }

  void open() { apply(SessionOpened{.session_id = kRecordedSession, .process = kRecorded}); }
  void apply(const SessionEvent& event) { sessions_.apply(event, 0); }

  DropCounters drops_;
  SessionMemory memory_{drops_};
  SessionRegistry sessions_{{}, drops_, memory_};
  TraceRecorder recorder_{{.max_bytes = 4 << 16, .span_ns = 1'000'000'000}, drops_};
};

TEST_F(TraceRecorderTest, KeepsWhatFitsAndLetsTheOldestGo) {
  recorder_.apply(make_launches(10 * TraceRecorder::kChunkEvents));

  const RecorderRow row = recorder_.row(1'000'000);

  EXPECT_EQ(row.bytes, row.max_bytes);
  EXPECT_EQ(row.events, 4 * TraceRecorder::kChunkEvents);
  EXPECT_EQ(count_events(recorder_.take(recorder_.pin(0, UINT64_MAX))),
            4 * TraceRecorder::kChunkEvents);
}

TEST_F(TraceRecorderTest, LetsGoWhatIsOlderThanItsSpan) {
  recorder_.apply(make_launches(TraceRecorder::kChunkEvents));
  recorder_.apply(make_launches(10, 5'000'000'000));

  recorder_.expire(7'000'000'000);

  EXPECT_EQ(recorder_.row(7'000'000'000).events, 10);
}

TEST_F(TraceRecorderTest, HoldsLittleMoreThanItsSpanWhenLittleHappens) {
  constexpr uint64_t kStepNs = 10'000'000;  // 100 events in a second: a chunk takes 20 s
  TraceRecorder recorder({.max_bytes = 1 << 20, .span_ns = 1'000'000'000}, drops_);
  uint64_t longest_ns = 0;
  for (uint64_t now_ns = kStepNs; now_ns < 10'000'000'000; now_ns += kStepNs) {
    recorder.apply(make_launches(1, now_ns));
    recorder.expire(static_cast<int64_t>(now_ns));
    longest_ns = std::max(longest_ns, recorder.row(static_cast<int64_t>(now_ns)).span_ns);
  }

  EXPECT_GE(longest_ns, 1'000'000'000);
  EXPECT_LE(longest_ns, 1'150'000'000);
}

TEST_F(TraceRecorderTest, ReachesBackToItsOldestEventThoughThatCameLater) {
  recorder_.apply(make_launches(1, 5'000'000'000));
  recorder_.apply(make_launches(1, 4'900'000'000));

  EXPECT_EQ(recorder_.row(6'000'000'000).span_ns, 1'100'000'000);
}

TEST_F(TraceRecorderTest, APinKeepsMoreThanTheRecorderHas) {
  const auto pin = recorder_.pin(0, UINT64_MAX);

  recorder_.apply(make_launches(10 * TraceRecorder::kChunkEvents));

  EXPECT_EQ(count_events(recorder_.take(pin)), 10 * TraceRecorder::kChunkEvents);
}

TEST_F(TraceRecorderTest, APinCountsWhatItHasNoRoomFor) {
  const auto pin = recorder_.pin(0, uint64_t{3} << 16);

  recorder_.apply(make_launches(5 * TraceRecorder::kChunkEvents));

  EXPECT_EQ(pin->lost_events, 2 * TraceRecorder::kChunkEvents);
  EXPECT_EQ(drops_.get(DropCause::kTraceCaptureFull), 2 * TraceRecorder::kChunkEvents);
  EXPECT_EQ(count_events(recorder_.take(pin)), 3 * TraceRecorder::kChunkEvents);
}

TEST_F(TraceRecorderTest, APinGoesBackToItsTimeAndSoManyBytesFurther) {
  for (uint64_t second = 1; second <= 3; ++second) {
    recorder_.apply(make_launches(TraceRecorder::kChunkEvents, second * 1'000'000'000));
  }
  const auto count_from = [this](uint64_t before_bytes) {
    return count_events(recorder_.take(recorder_.pin(2'500'000'000, UINT64_MAX, before_bytes)));
  };

  EXPECT_EQ(count_from(0), TraceRecorder::kChunkEvents);
  EXPECT_EQ(count_from(uint64_t{1} << 16), 2 * TraceRecorder::kChunkEvents);
  EXPECT_EQ(count_from(UINT64_MAX), 3 * TraceRecorder::kChunkEvents);
}

TEST_F(TraceRecorderTest, PinsTakenTogetherGiveEveryEventOnceInOrder) {
  recorder_.apply(make_launches(TraceRecorder::kChunkEvents, 1'000'000'000));
  const std::vector<std::shared_ptr<TraceRecorder::Pin>> pins = {
      recorder_.pin(2'000'000'000, UINT64_MAX), recorder_.pin(0, UINT64_MAX)};
  recorder_.apply(make_launches(10, 3'000'000'000));

  const TraceWindow window = recorder_.take(pins);

  EXPECT_EQ(count_events(window), TraceRecorder::kChunkEvents + 10);
  EXPECT_EQ(window.parts.front().events->front().start_mono_ns, 1'000'000'000);
}

TEST_F(TraceRecorderTest, SaysUpToWhenItHasForgotten) {
  recorder_.apply(make_launches(TraceRecorder::kChunkEvents, 1'000'000'000));
  recorder_.apply(make_launches(10, 35'000'000'000));
  EXPECT_EQ(recorder_.forgotten_mono_ns(), 0);

  recorder_.expire(35'500'000'000);
  EXPECT_EQ(recorder_.forgotten_mono_ns(), 0);  // the next chunk begins within the span
  recorder_.expire(37'000'000'000);

  EXPECT_GE(recorder_.forgotten_mono_ns(), 1'000'000'000);
}

TEST_F(TraceRecorderTest, AWindowDoesNotChangeAnyMore) {
  recorder_.apply(make_launches(5));
  const TraceWindow window = recorder_.take(recorder_.pin(0, UINT64_MAX));

  recorder_.apply(make_launches(5));

  EXPECT_EQ(count_events(window), 5);
  EXPECT_EQ(window.parts.back().tables->processes.size(), 1);
}

TEST_F(TraceRecorderTest, WithoutARecorderOnlyPinsRecord) {
  TraceRecorder off({.max_bytes = 0}, drops_);
  off.apply(make_launches(5));
  const auto pin = off.pin(0, UINT64_MAX);
  off.apply(make_launches(7));

  EXPECT_EQ(count_events(off.take(pin)), 7);
  EXPECT_FALSE(off.row(0).enabled);
}

TEST_F(TraceRecorderTest, KeepsEveryFieldOfAKernelInThirtyTwoBytes) {
  open();
  SessionBatch batch{.session_id = kRecordedSession};
  batch.names = {{.id = 1, .text = "_Z1kv"}};
  batch.shapes = {{.id = 2, .grid = {4, 5, 6}}};
  batch.places = {{.id = 3, .device = 1, .context = 2, .stream = 13}};
  batch.kernels = {{.start_mono_ns = 10,
                    .duration_ns = 20,
                    .correlation_id = 30,
                    .name_id = 1,
                    .shape_id = 2,
                    .place_id = 3,
                    .graph_id = 40,
                    .node_id = 50}};

  apply(batch);
  const TraceWindow window = recorder_.take(recorder_.pin(0, UINT64_MAX));

  const TraceEvent event = window.parts.back().events->front();
  const TraceTables& tables = *window.parts.back().tables;
  EXPECT_EQ(event.start_mono_ns, 10);
  EXPECT_EQ(event.duration_ns, 20);
  EXPECT_EQ(event.kind, static_cast<uint64_t>(TraceKind::kKernel));
  EXPECT_EQ(event.first, 30);
  EXPECT_EQ(*tables.names[event.second], "_Z1kv");
  EXPECT_EQ(tables.places[event.third & UINT16_MAX],
            (TracePlace{.device = 1, .context = 2, .stream = 13}));
  EXPECT_EQ(tables.shapes[event.third >> 16].grid, (std::array<uint32_t, 3>{4, 5, 6}));
  EXPECT_EQ(tables.graphs[event.tag], 40);
  EXPECT_EQ(event.fourth, 50);
  EXPECT_TRUE(tables.processes[event.process].is_injected);
}

TEST_F(TraceRecorderTest, CutsWhatHasNoRoom) {
  open();
  SessionBatch batch{.session_id = kRecordedSession};
  batch.places = {{.id = 1}};
  batch.copies = {{.start_mono_ns = 10,
                   .duration_ns = UINT64_MAX,
                   .bytes = UINT64_MAX,
                   .place_id = 1,
                   .direction = 8}};

  apply(batch);
  const TraceWindow window = recorder_.take(recorder_.pin(0, UINT64_MAX));

  const TraceEvent event = window.parts.back().events->front();
  EXPECT_EQ(event.duration_ns, kTraceMaxDurationNs);
  const uint64_t packed = event.third | static_cast<uint64_t>(event.fourth) << 32;
  EXPECT_EQ(packed & kTraceMaxBytes, kTraceMaxBytes);
  EXPECT_EQ(packed >> 40, 8);
}

// 5,000 processes: more than an epoch names.
TEST_F(TraceRecorderTest, AFullTableBeginsAnEpochAndOldEventsKeepTheirs) {
  const auto pin = recorder_.pin(0, UINT64_MAX);
  for (uint32_t pid = 1; pid <= 5'000; ++pid) {
    TraceBatch batch;
    batch.launches = {{.mono_ns = pid, .process = {.pid = pid}, .tid = pid}};
    recorder_.apply(batch);
  }

  const TraceWindow window = recorder_.take(pin);

  for (const TraceWindow::Part& part : window.parts) {
    for (const TraceEvent& event : *part.events) {
      ASSERT_EQ(part.tables->processes[event.process].process.pid, event.first);
    }
  }
  EXPECT_EQ(count_events(window), 5'000);
}

TEST_F(TraceRecorderTest, ASessionGoesOnInTheNextEpoch) {
  open();
  SessionBatch names{.session_id = kRecordedSession};
  names.names = {{.id = 1, .text = "first"}, {.id = 2, .text = "second"}};
  names.places = {{.id = 1, .stream = 7}};
  apply(names);
  for (uint32_t pid = 1; pid <= 5'000; ++pid) {
    TraceBatch batch;
    batch.launches = {{.mono_ns = pid, .process = {.pid = pid}, .tid = pid}};
    recorder_.apply(batch);
  }
  SessionBatch kernels{.session_id = kRecordedSession};
  kernels.kernels = {{.start_mono_ns = 9'000, .name_id = 2, .place_id = 1}};

  apply(kernels);
  const TraceWindow window = recorder_.take(recorder_.pin(0, UINT64_MAX));

  const TraceEvent event = window.parts.back().events->back();
  const TraceTables& tables = *window.parts.back().tables;
  EXPECT_EQ(*tables.names[event.second], "second");
  EXPECT_EQ(tables.places[event.third & UINT16_MAX].stream, 7);
  EXPECT_EQ(tables.processes[event.process].process, kRecorded);
}

TEST_F(TraceRecorderTest, TellsOfLossesOnce) {
  open();
  SessionStatus status{.session_id = kRecordedSession};
  status.losses[GPUPERF_SESSION_LOSS_CUPTI_BUFFER] = 5;
  apply(status);
  apply(status);

  const TraceWindow window = recorder_.take(recorder_.pin(0, UINT64_MAX));

  ASSERT_EQ(count_events(window), 1);
  EXPECT_EQ(window.parts.back().events->front().second, 5);
}

TEST_F(TraceRecorderTest, BoundsItsSites) {
  TraceBatch batch;
  for (uint64_t id = 1; id <= TraceRecorder::kMaxSites + 3; ++id) {
    batch.sites.push_back({.site_id = id});
  }

  recorder_.apply(batch);

  EXPECT_EQ(drops_.get(DropCause::kTraceTablesFull), 3);
}

}  // namespace
}  // namespace gpuperf
