#include "daemon/state/adaptive_thresholds.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/state/examples.h"

namespace gpuperf {
namespace {

using Changes = std::vector<std::pair<uint32_t, uint64_t>>;  // function, threshold in ns

constexpr uint64_t kMinCalls = AdaptiveThresholds::kMinCalls;
// Half a bucket: as far as the p99 may be from the calls themselves.
constexpr double kAccuracy = 0.032;

CellDelta make_calls(uint32_t function_id, uint64_t duration_ns, uint64_t calls) {
  return {
      .function_id = function_id,
      .buckets = {{static_cast<uint16_t>(bucket_of(duration_ns)), static_cast<uint32_t>(calls)}}};
}

// The threshold of function 0 as it was reported, 0 = it was not.
uint64_t find_reported_ns(const Changes& changes) {
  return changes.size() == 1 && changes[0].first == 0 ? changes[0].second : 0;
}

class AdaptiveThresholdsTest : public testing::Test {
 protected:
  // Calls of one second, then its judgement.
  Changes judge_after(const std::vector<CellDelta>& deltas) {
    for (const CellDelta& delta : deltas) thresholds_.apply(delta);
    return judge();
  }
  Changes judge() {
    now_mono_ns_ += kSecondNs;
    return thresholds_.judge(now_mono_ns_);
  }
  std::vector<uint64_t> get_in_force() const {
    Snapshot snapshot;
    thresholds_.fill(snapshot);
    return snapshot.adaptive_threshold_ns;
  }

  AdaptiveThresholds thresholds_{{.factor = 10, .floor_ns = 1'000'000}};
  int64_t now_mono_ns_ = 500 * kSecondNs;
};

TEST_F(AdaptiveThresholdsTest, GiveNoneBelowAThousandCallsAMinute) {
  EXPECT_EQ(judge_after({make_calls(0, 1'000'000, kMinCalls - 1)}), Changes());
  EXPECT_EQ(get_in_force(), std::vector<uint64_t>{0});

  EXPECT_NE(find_reported_ns(judge_after({make_calls(0, 1'000'000, 1)})), 0u);
}

TEST_F(AdaptiveThresholdsTest, AreTheFactorTimesTheP99WithinTheHistogramsAccuracy) {
  for (uint64_t duration_ns : {200'000, 1'234'567, 50'000'000}) {
    AdaptiveThresholds thresholds({.factor = 10, .floor_ns = 1});
    thresholds.apply(make_calls(0, duration_ns, kMinCalls));

    const auto threshold_ns = static_cast<double>(find_reported_ns(thresholds.judge(kSecondNs)));

    const double expected_ns = 10 * static_cast<double>(duration_ns);
    EXPECT_NEAR(threshold_ns, expected_ns, kAccuracy * expected_ns);
  }
}

TEST_F(AdaptiveThresholdsTest, GoByTheSlowestHundredthOfTheCalls) {
  const uint64_t common = find_reported_ns(
      judge_after({make_calls(0, 1'000'000, 9'900), make_calls(0, 80'000'000, 100)}));
  const uint64_t slow = find_reported_ns(judge_after({make_calls(0, 80'000'000, 1)}));

  EXPECT_NEAR(static_cast<double>(common), 1e7, kAccuracy * 1e7);
  EXPECT_NEAR(static_cast<double>(slow), 8e8, kAccuracy * 8e8);
}

TEST_F(AdaptiveThresholdsTest, NeverFallBelowTheFloor) {
  EXPECT_EQ(judge_after({make_calls(0, 50'000, kMinCalls)}), (Changes{{0, 1'000'000}}));
}

TEST_F(AdaptiveThresholdsTest, StayWithinTheIntegersForCallsOfHours) {
  AdaptiveThresholds thresholds({.factor = 1e6, .floor_ns = 1});
  thresholds.apply(make_calls(0, UINT64_MAX, kMinCalls));

  EXPECT_EQ(thresholds.judge(kSecondNs), (Changes{{0, 1'000'000'000'000'000'000}}));
}

TEST_F(AdaptiveThresholdsTest, AreEachFunctionsOwnOverAllProcesses) {
  CellDelta of_another_process = make_calls(2, 1'000'000, kMinCalls / 2);
  of_another_process.process = {.pid = 9, .start_boot_ns = 9};

  const Changes changes =
      judge_after({make_calls(2, 1'000'000, kMinCalls / 2), of_another_process,
                   make_calls(0, 10'000, kMinCalls), make_calls(1, 10'000, kMinCalls - 1)});

  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0], (std::pair<uint32_t, uint64_t>(0, 1'000'000)));
  EXPECT_EQ(changes[1].first, 2u);
  EXPECT_NEAR(static_cast<double>(changes[1].second), 1e7, kAccuracy * 1e7);
}

TEST_F(AdaptiveThresholdsTest, AddUpTheCallsOfAMinute) {
  constexpr uint64_t kCallsASecond = kMinCalls / 50 + 1;  // enough in 50 seconds, not in 40
  int seconds = 0;
  while (find_reported_ns(judge_after({make_calls(0, 1'000'000, kCallsASecond)})) == 0) {
    ASSERT_LT(++seconds, 60);
  }

  EXPECT_GT(seconds, 40);
}

TEST_F(AdaptiveThresholdsTest, WithdrawWhenTheCallsAreAMinuteOld) {
  ASSERT_NE(find_reported_ns(judge_after({make_calls(0, 1'000'000, kMinCalls)})), 0u);

  for (int second = 1; second < 50; ++second) ASSERT_EQ(judge(), Changes()) << second;
  Changes withdrawn;
  for (int second = 50; second <= 61 && withdrawn.empty(); ++second) withdrawn = judge();

  EXPECT_EQ(withdrawn, (Changes{{0, 0}}));
  EXPECT_EQ(get_in_force(), std::vector<uint64_t>{0});
  EXPECT_EQ(judge(), Changes());
}

TEST_F(AdaptiveThresholdsTest, FollowAFunctionThatGetsFaster) {
  (void)judge_after({make_calls(0, 100'000'000, kMinCalls)});
  Changes changes;
  for (int second = 0; second <= 61; ++second) {
    Changes changed = judge_after({make_calls(0, 1'000'000, kMinCalls)});
    if (!changed.empty()) changes = std::move(changed);
  }

  EXPECT_NEAR(static_cast<double>(find_reported_ns(changes)), 1e7, kAccuracy * 1e7);
}

TEST_F(AdaptiveThresholdsTest, ReportOnlyChangesOfMoreThanATenth) {
  const uint64_t before_ns = find_reported_ns(judge_after({make_calls(0, 1'000'000, kMinCalls)}));

  const Changes by_six_percent = judge_after({make_calls(0, 1'070'000, 1'000 * kMinCalls)});
  const Changes by_a_quarter = judge_after({make_calls(0, 1'250'000, 1'000'000 * kMinCalls)});

  EXPECT_EQ(by_six_percent, Changes());
  EXPECT_NEAR(static_cast<double>(find_reported_ns(by_a_quarter)),
              1.25 * static_cast<double>(before_ns), 0.07 * static_cast<double>(before_ns));
}

TEST_F(AdaptiveThresholdsTest, KeepTheThresholdInForceWhileItsChangesAreSmall) {
  const uint64_t before_ns = find_reported_ns(judge_after({make_calls(0, 1'000'000, kMinCalls)}));

  (void)judge_after({make_calls(0, 1'070'000, 1'000 * kMinCalls)});

  EXPECT_EQ(get_in_force(), std::vector<uint64_t>{before_ns});
}

TEST_F(AdaptiveThresholdsTest, AllWithdrawWithAFactorOfZero) {
  (void)judge_after({make_calls(0, 1'000'000, kMinCalls), make_calls(2, 9'000'000, kMinCalls)});

  thresholds_.set_options({.factor = 0, .floor_ns = 1'000'000});

  EXPECT_EQ(judge_after({make_calls(1, 1'000'000, kMinCalls)}), (Changes{{0, 0}, {2, 0}}));
  EXPECT_EQ(get_in_force(), (std::vector<uint64_t>{0, 0, 0}));
}

TEST_F(AdaptiveThresholdsTest, FollowANewFactorAndFloorAtOnce) {
  (void)judge_after({make_calls(0, 1'000'000, kMinCalls)});

  thresholds_.set_options({.factor = 20, .floor_ns = 1'000'000});
  const uint64_t doubled_ns = find_reported_ns(judge());
  thresholds_.set_options({.factor = 20, .floor_ns = 70'000'000});

  EXPECT_NEAR(static_cast<double>(doubled_ns), 2e7, kAccuracy * 2e7);
  EXPECT_EQ(judge(), (Changes{{0, 70'000'000}}));
}

TEST_F(AdaptiveThresholdsTest, FillTheSnapshotByFunction) {
  const Changes changes = judge_after({make_calls(3, 1'000'000, kMinCalls)});
  ASSERT_EQ(changes.size(), 1u);

  EXPECT_EQ(get_in_force(), (std::vector<uint64_t>{0, 0, 0, changes[0].second}));
}

TEST_F(AdaptiveThresholdsTest, TakeNoticeOfCompletedCallsOnly) {
  EXPECT_EQ(judge_after({{.function_id = 5, .calls = 10'000}}), Changes());
  EXPECT_EQ(get_in_force(), std::vector<uint64_t>());
}

}  // namespace
}  // namespace gpuperf
