#include "daemon/state/launch_join.h"

#include <gtest/gtest.h>

#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

using Api = LaunchJoin::Api;
using Match = LaunchJoin::Match;
using Work = LaunchJoin::Work;
using WorkKind = LaunchJoin::WorkKind;

class LaunchJoinTest : public ::testing::Test {
 protected:
  uint64_t dropped(DropCause cause) const { return drops_.get(cause); }

  DropCounters drops_;
  LaunchJoin join_{drops_};
  const Api api_{.correlation_id = 7, .start_ns = 100, .end_ns = 130};
  const Work kernel_{.correlation_id = 7, .start_ns = 200, .target = 42};
  const Match match_{.api_start_ns = 100, .api_end_ns = 130, .work_start_ns = 200, .target = 42};
};

TEST_F(LaunchJoinTest, JoinsAKernelWithTheCallBeforeIt) {
  EXPECT_EQ(join_.add(api_, kNowNs), std::nullopt);

  EXPECT_EQ(join_.add(kernel_, kNowNs), match_);

  EXPECT_EQ(join_.size(), 0u);
}

TEST_F(LaunchJoinTest, JoinsAKernelThatCameBeforeItsCall) {
  EXPECT_EQ(join_.add(kernel_, kNowNs), std::nullopt);

  EXPECT_EQ(join_.add(api_, kNowNs + 5 * kSecondNs), match_);

  EXPECT_EQ(join_.size(), 0u);
}

TEST_F(LaunchJoinTest, TellsIdsApartAcrossTheirWrap) {
  Api last = api_;
  last.correlation_id = UINT32_MAX;
  Api first = api_;
  first.correlation_id = 0;
  Work late = kernel_;
  late.correlation_id = UINT32_MAX;
  (void)join_.add(last, kNowNs);
  (void)join_.add(first, kNowNs);

  EXPECT_EQ(join_.add(late, kNowNs), match_);

  EXPECT_EQ(join_.size(), 1u);
}

TEST_F(LaunchJoinTest, DoesNotJoinAnIdOfAMinuteAgo) {
  (void)join_.add(api_, kNowNs);

  EXPECT_EQ(join_.add(kernel_, kNowNs + 61 * kSecondNs), std::nullopt);

  EXPECT_EQ(dropped(DropCause::kJoinLaunchesExpired), 1u);
  EXPECT_EQ(join_.size(), 1u);  // the kernel waits for its own call
}

TEST_F(LaunchJoinTest, TakesTheNewerOfTwoCallsWithOneId) {
  (void)join_.add(api_, kNowNs);
  Api newer = api_;
  newer.start_ns = 150;
  newer.end_ns = 160;
  (void)join_.add(newer, kNowNs);

  const auto match = join_.add(kernel_, kNowNs);

  ASSERT_TRUE(match);
  EXPECT_EQ(match->api_start_ns, 150u);
}

TEST_F(LaunchJoinTest, ReportsTheEarliestNodeOfAGraphOnceAllHaveCome) {
  (void)join_.add(api_, kNowNs);
  for (const uint64_t start_ns : {300, 200, 400}) {
    EXPECT_EQ(
        join_.add(
            Work{.correlation_id = 7, .start_ns = start_ns, .target = 42, .kind = WorkKind::kNode},
            kNowNs),
        std::nullopt);
  }

  EXPECT_TRUE(join_.expire(kNowNs + kSecondNs).empty());
  const auto settled = join_.expire(kNowNs + 3 * kSecondNs);

  Match expected = match_;
  expected.is_graph_node = true;
  EXPECT_EQ(settled, std::vector<Match>{expected});
  EXPECT_EQ(join_.size(), 0u);
}

TEST_F(LaunchJoinTest, JoinsNodesThatCameBeforeTheirLaunch) {
  (void)join_.add(Work{.correlation_id = 7, .start_ns = 200, .target = 42, .kind = WorkKind::kNode},
                  kNowNs);
  EXPECT_EQ(join_.add(api_, kNowNs), std::nullopt);

  const auto settled = join_.expire(kNowNs + 3 * kSecondNs);

  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].work_start_ns, 200u);
}

TEST_F(LaunchJoinTest, CountsAKernelWhoseCallNeverComes) {
  (void)join_.add(kernel_, kNowNs);

  EXPECT_TRUE(join_.expire(kNowNs + 61 * kSecondNs).empty());

  EXPECT_EQ(dropped(DropCause::kJoinWorkExpired), 1u);
  EXPECT_EQ(join_.size(), 0u);
}

TEST_F(LaunchJoinTest, CountsACallThatShouldHaveCausedSomething) {
  Api quiet = api_;
  quiet.correlation_id = 8;
  quiet.expects_work = false;
  (void)join_.add(api_, kNowNs);
  (void)join_.add(quiet, kNowNs);

  (void)join_.expire(kNowNs + 61 * kSecondNs);

  EXPECT_EQ(dropped(DropCause::kJoinLaunchesExpired), 1u);
}

TEST_F(LaunchJoinTest, LosesNothingByACopyWithItsCall) {
  Work copy = kernel_;
  copy.kind = WorkKind::kSeveral;
  (void)join_.add(api_, kNowNs);
  EXPECT_EQ(join_.add(copy, kNowNs), std::nullopt);
  EXPECT_EQ(join_.add(copy, kNowNs), std::nullopt);  // a call may copy in parts

  (void)join_.expire(kNowNs + 61 * kSecondNs);

  EXPECT_EQ(dropped(DropCause::kJoinLaunchesExpired), 0u);
  EXPECT_EQ(dropped(DropCause::kJoinWorkExpired), 0u);
  EXPECT_EQ(join_.size(), 0u);
}

TEST_F(LaunchJoinTest, LetsTheOldestGoWhenFull) {
  LaunchJoin join(drops_, 100);
  for (uint32_t id = 0; id < 101; ++id) {
    (void)join.add(Api{.correlation_id = id, .start_ns = id, .end_ns = id},
                   kNowNs + id * 10'000'000);
  }

  EXPECT_GE(dropped(DropCause::kJoinLaunchesFull), 50u);
  EXPECT_EQ(join.size(), 101 - dropped(DropCause::kJoinLaunchesFull));
  EXPECT_EQ(join.add(Work{.correlation_id = 0}, kNowNs + kSecondNs), std::nullopt);
  EXPECT_NE(join.add(Work{.correlation_id = 100}, kNowNs + kSecondNs), std::nullopt);
}

TEST_F(LaunchJoinTest, CountsWorkThatLeavesWhenFull) {
  LaunchJoin join(drops_, 10);
  for (uint32_t id = 0; id < 11; ++id) (void)join.add(Work{.correlation_id = id}, kNowNs);

  EXPECT_EQ(dropped(DropCause::kJoinWorkFull), 10u);  // all of one moment
  EXPECT_EQ(join.size(), 1u);
}

TEST_F(LaunchJoinTest, ForgetsWhatBeganBeforeTheIdsBeganAnew) {
  (void)join_.add(api_, kNowNs);
  Api after = api_;
  after.correlation_id = 8;
  after.start_ns = 500;
  after.end_ns = 510;
  (void)join_.add(after, kNowNs);

  join_.forget_before(300);

  EXPECT_EQ(join_.add(kernel_, kNowNs), std::nullopt);
  Work next = kernel_;
  next.correlation_id = 8;
  EXPECT_NE(join_.add(next, kNowNs), std::nullopt);
}

}  // namespace
}  // namespace gpuperf
