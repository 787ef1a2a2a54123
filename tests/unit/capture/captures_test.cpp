#include "daemon/capture/captures.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace gpuperf {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000 * kMs;
constexpr ProcessKey kTraced = {.pid = 71, .start_boot_ns = 50'000'000};

class CapturesTest : public ::testing::Test {
 protected:
  // MONOTONIC runs 100 s behind the wall clock.
  static Captures::Now at(uint64_t mono_ns) {
    return {.mono_ns = mono_ns, .unix_ns = mono_ns + 100 * kSecond};
  }
  void launch(uint64_t mono_ns) {
    TraceBatch batch;
    batch.launches = {{.mono_ns = mono_ns, .process = kTraced, .tid = 71}};
    recorder_.apply(batch);
  }

  DropCounters drops_;
  TraceRecorder recorder_{{}, drops_};
  Captures captures_{{.max_duration_ns = 60 * kSecond, .settle_ns = kSecond}, recorder_, {}, 41};
};

TEST_F(CapturesTest, RunsForItsDurationSettlesAndIsHandedOn) {
  const auto started = captures_.start({.name = "n", .duration_ms = 500}, {}, at(10 * kSecond));
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(started->id, 42);
  EXPECT_EQ(started->state, CaptureState::kRunning);

  EXPECT_TRUE(captures_.advance(at(10 * kSecond + 400 * kMs), 0).empty());
  EXPECT_EQ(captures_.find(42)->state, CaptureState::kRunning);
  EXPECT_TRUE(captures_.advance(at(10 * kSecond + 500 * kMs), 0).empty());
  EXPECT_EQ(captures_.find(42)->state, CaptureState::kSettling);
  // What hooks have kept is reported a little later.
  EXPECT_EQ(captures_.wanted(10 * kSecond + 749 * kMs).size(), 1);
  EXPECT_TRUE(captures_.wanted(10 * kSecond + 750 * kMs).empty());
  const auto finished = captures_.advance(at(11 * kSecond + 500 * kMs), 3);

  ASSERT_EQ(finished.size(), 1);
  EXPECT_EQ(finished[0].scope.start_mono_ns, 10 * kSecond);
  EXPECT_EQ(finished[0].scope.end_mono_ns, 10 * kSecond + 500 * kMs);
  EXPECT_EQ(finished[0].scope.start_unix_ns, 110 * kSecond);
  EXPECT_EQ(finished[0].scope.lost_hits, 3);
  EXPECT_EQ(captures_.find(42)->state, CaptureState::kBuilding);
  EXPECT_TRUE(captures_.advance(at(20 * kSecond), 3).empty());
}

TEST_F(CapturesTest, BeginsAtAMultipleOfTheWallClock) {
  const auto row =
      captures_.start({.duration_ms = 1'000, .align_ms = 60'000}, {}, at(10 * kSecond));

  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->state, CaptureState::kScheduled);
  EXPECT_EQ(row->start_unix_ns, 120 * kSecond);
  (void)captures_.advance(at(20 * kSecond - 1), 0);
  EXPECT_EQ(captures_.find(42)->state, CaptureState::kScheduled);
  (void)captures_.advance(at(20 * kSecond), 0);
  EXPECT_EQ(captures_.find(42)->state, CaptureState::kRunning);
}

TEST_F(CapturesTest, AFreezeHoldsWhatTheRecorderHas) {
  launch(5 * kSecond);
  launch(9 * kSecond);

  const auto row = captures_.freeze({.last_ms = 3'000}, {}, at(10 * kSecond));
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->trigger, "recorder");
  EXPECT_EQ(row->duration_ns, 3 * kSecond);
  const auto finished = captures_.advance(at(11 * kSecond), 0);

  ASSERT_EQ(finished.size(), 1);
  EXPECT_EQ(finished[0].scope.start_mono_ns, 7 * kSecond);
  EXPECT_EQ(finished[0].scope.end_mono_ns, 10 * kSecond);
}

TEST_F(CapturesTest, AStoppedOneEndsAtThatMoment) {
  (void)captures_.start({}, {}, at(10 * kSecond));

  ASSERT_TRUE(captures_.stop(42, at(12 * kSecond)).ok());
  const auto finished = captures_.advance(at(13 * kSecond), 0);

  ASSERT_EQ(finished.size(), 1);
  EXPECT_EQ(finished[0].scope.end_mono_ns, 12 * kSecond);
  EXPECT_TRUE(absl::IsFailedPrecondition(captures_.stop(42, at(13 * kSecond)).status()));
  EXPECT_TRUE(absl::IsNotFound(captures_.stop(7, at(13 * kSecond)).status()));
}

TEST_F(CapturesTest, AScheduledOneThatIsStoppedFailsWithAReason) {
  (void)captures_.start({.align_ms = 60'000}, {}, at(10 * kSecond));

  const auto row = captures_.stop(42, at(11 * kSecond));

  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->state, CaptureState::kFailed);
  EXPECT_EQ(row->problem, "stopped before it began");
}

TEST_F(CapturesTest, RefusesWhatCannotBe) {
  const auto start = [this](const CaptureOrder& order) {
    return captures_.start(order, {}, at(kSecond)).status();
  };

  EXPECT_TRUE(absl::IsInvalidArgument(start({.duration_ms = 61'000})));
  EXPECT_TRUE(absl::IsInvalidArgument(start({.cpu = false, .gpu = false})));
  EXPECT_TRUE(absl::IsInvalidArgument(start({.name = std::string(129, 'x')})));
  EXPECT_TRUE(absl::IsInvalidArgument(start({.target = {.with_children = true}})));
  EXPECT_TRUE(absl::IsNotFound(start({.target = {.pid = 4}})));
  EXPECT_TRUE(captures_.rows().empty());
}

TEST_F(CapturesTest, UsersLeaveRootAndEachOtherPlaces) {
  const auto start = [this](uint32_t uid) {
    return captures_.start({.align_ms = 60'000, .requester_uid = uid}, {}, at(kSecond)).status();
  };
  for (size_t i = 0; i < Captures::kMaxOfUser; ++i) EXPECT_TRUE(start(1'000).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(start(1'000)));
  EXPECT_TRUE(start(1'001).ok());
  for (uint32_t uid = 1'002; uid < 1'010; ++uid) (void)start(uid);
  EXPECT_TRUE(absl::IsResourceExhausted(start(1'010)));
  for (size_t i = 0; i < Captures::kKeptForRoot; ++i) EXPECT_TRUE(start(0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(start(0)));

  EXPECT_TRUE(captures_.stop(42, at(kSecond)).ok());

  EXPECT_TRUE(start(1'000).ok());
}

TEST_F(CapturesTest, NoMoreThanEightRunAtOnce) {
  for (size_t i = 0; i < Captures::kMaxRunning; ++i) {
    ASSERT_TRUE(captures_.start({}, {}, at(kSecond)).ok());
  }

  EXPECT_TRUE(absl::IsResourceExhausted(captures_.start({}, {}, at(kSecond)).status()));
}

TEST_F(CapturesTest, AChildOfATargetIsATarget) {
  const CaptureOrder order{.target = {.pid = 71, .with_children = true}};
  (void)captures_.start(order, {kTraced}, at(kSecond));
  const ProcessKey child{.pid = 72, .start_boot_ns = 90'000'000};
  const ProcessKey grandchild{.pid = 73, .start_boot_ns = 95'000'000};

  captures_.add_child(kTraced, child);
  captures_.add_child(child, grandchild);
  captures_.add_child({.pid = 99}, {.pid = 100});

  EXPECT_EQ(captures_.wanted(kSecond).at(0).processes, (std::vector{kTraced, child, grandchild}));
}

TEST_F(CapturesTest, KeepsTheRowsOfEarlierRunsAndForgetsTheDeleted) {
  const CaptureRow old{.id = 40, .state = CaptureState::kStored};
  Captures captures({}, recorder_, {old}, 41);

  EXPECT_EQ(captures.rows(), std::vector{old});
  EXPECT_TRUE(captures.remove(40).ok());
  EXPECT_TRUE(absl::IsNotFound(captures.remove(40)));
}

TEST_F(CapturesTest, ForgetsWhatTheStoreHasLetGo) {
  const CaptureRow kept{.id = 39, .state = CaptureState::kStored};
  const CaptureRow gone{.id = 40, .state = CaptureState::kStored};
  Captures captures({}, recorder_, {kept, gone}, 41);
  (void)captures.start({}, {}, at(kSecond));

  captures.keep_stored({kept});

  ASSERT_EQ(captures.rows().size(), 2);
  EXPECT_EQ(captures.rows()[0], kept);
  EXPECT_EQ(captures.rows()[1].id, 42);
}

TEST_F(CapturesTest, OneThatRunsIsNotDeleted) {
  (void)captures_.start({}, {}, at(kSecond));

  EXPECT_TRUE(absl::IsFailedPrecondition(captures_.remove(42)));
}

}  // namespace
}  // namespace gpuperf
