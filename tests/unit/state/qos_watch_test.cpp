#include "daemon/state/qos_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

namespace gpuperf {
namespace {

using Change = QosWatch::Change;
using Reading = QosRule::Reading;

constexpr int64_t kTickNs = 500'000'000;
constexpr int64_t kReleaseNs = 10'000'000'000;

class QosWatchTest : public testing::Test {
 protected:
  static QosRule make_rule(Reading reading, bool is_upper = true) {
    return {.name = "rule",
            .text = "",
            .metric = reading == Reading::kRate ? Metric::kStepTokens : Metric::kStepDuration,
            .labels = {},
            .reading = reading,
            .quantile = 0.99,
            .is_upper = is_upper,
            .limit = 0.05,
            .window_ns = 2'000'000'000};
  }

  // Half a second in which that much came; the changes of it.
  Change tick(QosWatch& watch) {
    now_ns_ += kTickNs;
    QosSample sample = totals_;
    sample.mono_ns = now_ns_;
    return watch.apply(std::move(sample), now_ns_);
  }
  void add_steps(uint64_t count, double seconds) {
    totals_.durations.add(bucket_of(static_cast<uint64_t>(seconds * 1e9)), count);
    totals_.count += count;
    totals_.sum += seconds * static_cast<double>(count);
  }
  // So many ticks with steps that take `seconds`: what changed, the last if several did.
  Change run(QosWatch& watch, int ticks, double seconds) {
    Change last = Change::kNone;
    for (int i = 0; i < ticks; ++i) {
      add_steps(10, seconds);
      const Change change = tick(watch);
      if (change == Change::kNone) continue;
      ++changes_;
      last = change;
    }
    return last;
  }

  int64_t now_ns_ = 1'000'000'000'000;
  QosSample totals_;
  int changes_ = 0;
};

TEST_F(QosWatchTest, ABreachBeginsWithTheFirstWindowPastTheLimitAndEndsWellAfterTheLast) {
  QosWatch watch(make_rule(Reading::kQuantile), kReleaseNs);
  EXPECT_EQ(run(watch, 20, 0.030), Change::kNone);
  EXPECT_NEAR(*watch.row().value, 0.030, 0.001);

  EXPECT_EQ(run(watch, 1, 0.080), Change::kBreached);
  EXPECT_TRUE(watch.row().is_breached);
  EXPECT_EQ(watch.row().since_mono_ns, now_ns_);
  EXPECT_EQ(watch.row().breaches, 1u);
  EXPECT_NEAR(*watch.row().value, 0.080, 0.003);

  // The last window with the slow ones ends 1.5 s later; 10 s after that it is released.
  EXPECT_EQ(run(watch, 22, 0.030), Change::kNone);
  EXPECT_TRUE(watch.row().is_breached);
  EXPECT_EQ(run(watch, 1, 0.030), Change::kReleased);
  EXPECT_FALSE(watch.row().is_breached);
  EXPECT_EQ(watch.row().since_mono_ns, now_ns_);
}

TEST_F(QosWatchTest, AValueAboutTheLimitSwitchesOnce) {
  QosWatch watch(make_rule(Reading::kMean), kReleaseNs);
  for (int i = 0; i < 2'000; ++i) {
    run(watch, 1, 0.05 * (1 + 0.05 * std::sin(i / 7.0)));
  }
  EXPECT_EQ(changes_, 1);
  EXPECT_TRUE(watch.row().is_breached);
}

TEST_F(QosWatchTest, WhatIsBreachedAgainAtOnceIsHeldForTwiceAsLongUpToALimit) {
  QosWatch watch(make_rule(Reading::kQuantile), kReleaseNs);
  run(watch, 8, 0.030);
  int64_t longest_ns = 0;
  for (const int64_t factor : {1, 2, 4, 8, 16, 32, 32}) {
    ASSERT_EQ(run(watch, 1, 0.080), Change::kBreached);
    const int64_t begin_ns = now_ns_;
    while (watch.row().is_breached) run(watch, 1, 0.030);
    EXPECT_NEAR(static_cast<double>(now_ns_ - begin_ns),
                static_cast<double>(factor * kReleaseNs + 1'500'000'000), 1);
    longest_ns = factor * kReleaseNs;
  }
  // After a rest as long it is as at first.
  run(watch, static_cast<int>(longest_ns / kTickNs) + 1, 0.030);
  ASSERT_EQ(run(watch, 1, 0.080), Change::kBreached);
  EXPECT_EQ(run(watch, 22, 0.030), Change::kNone);
  EXPECT_EQ(run(watch, 1, 0.030), Change::kReleased);
}

TEST_F(QosWatchTest, WithoutAnythingToReadNothingIsBreachedAndABreachEnds) {
  QosWatch watch(make_rule(Reading::kQuantile), kReleaseNs);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(tick(watch), Change::kNone);
  EXPECT_EQ(watch.row().value, std::nullopt);
  ASSERT_EQ(run(watch, 1, 0.080), Change::kBreached);
  watch.note_ours();
  for (int i = 0; i < 22; ++i) EXPECT_EQ(tick(watch), Change::kNone);
  EXPECT_EQ(watch.row().value, std::nullopt);
  EXPECT_TRUE(watch.row().is_ours);
  EXPECT_EQ(tick(watch), Change::kReleased);
  EXPECT_FALSE(watch.row().is_ours);
}

TEST_F(QosWatchTest, EndsABreachAlsoWhenNoSampleComes) {
  QosWatch watch(make_rule(Reading::kMean), kReleaseNs);
  run(watch, 4, 0.03);
  ASSERT_EQ(run(watch, 1, 0.9), Change::kBreached);
  now_ns_ += 3'000'000'000;
  EXPECT_EQ(watch.apply(std::nullopt, now_ns_), Change::kNone);
  EXPECT_EQ(watch.row().value, std::nullopt);
  now_ns_ += kReleaseNs;
  EXPECT_EQ(watch.apply(std::nullopt, now_ns_), Change::kReleased);
}

TEST_F(QosWatchTest, ReadsARateOverItsWindowOnly) {
  QosRule rule = make_rule(Reading::kRate, /*is_upper=*/false);
  rule.limit = 100;
  QosWatch watch(rule, kReleaseNs);
  for (int i = 0; i < 20; ++i) {
    totals_.sum += 75;
    EXPECT_EQ(tick(watch), Change::kNone);
  }
  EXPECT_DOUBLE_EQ(*watch.row().value, 150);
  EXPECT_EQ(tick(watch), Change::kNone);  // 112.5
  EXPECT_EQ(tick(watch), Change::kBreached);
  EXPECT_DOUBLE_EQ(*watch.row().value, 75);
}

TEST_F(QosWatchTest, ReadsTheRateOfAHistogramByItsObservations) {
  QosRule rule = make_rule(Reading::kRate);
  rule.metric = Metric::kStepDuration;
  QosWatch watch(rule, kReleaseNs);
  run(watch, 10, 0.5);
  EXPECT_DOUBLE_EQ(*watch.row().value, 20);
}

TEST_F(QosWatchTest, OfAnotherProgramsHistogramQuantilesAreInterpolatedOfWhatCame) {
  QosRule rule = make_rule(Reading::kQuantile);
  rule.url = "http://127.0.0.1:1/";
  rule.quantile = 0.5;
  rule.limit = 1e9;
  QosWatch watch(rule, kReleaseNs);
  const double infinite = std::numeric_limits<double>::infinity();
  const auto read = [&](uint64_t to_1, uint64_t to_2, uint64_t all) {
    totals_.buckets = {{1, to_1}, {2, to_2}, {infinite, all}};
    return tick(watch);
  };
  // 1,000 fast ones before, which do not count.
  for (int i = 0; i < 5; ++i) read(1'000, 1'000, 1'000);
  EXPECT_EQ(watch.row().value, std::nullopt) << "none came";
  for (int i = 0; i < 5; ++i) read(1'010, 1'050, 1'060);
  EXPECT_EQ(watch.row().value, std::nullopt) << "none in the last 2 s";
  read(1'010, 1'050, 1'060);
  read(1'020, 1'060, 1'070);
  EXPECT_DOUBLE_EQ(*watch.row().value, 0.5) << "10 of 10 up to 1";
  for (int i = 0; i < 5; ++i) read(1'020, 1'060, 1'070);
  read(1'030, 1'100, 1'110);
  EXPECT_DOUBLE_EQ(*watch.row().value, 1 + 10.0 / 30) << "the 20th of 40: 10 up to 1, 30 to 2";
  for (int i = 0; i < 5; ++i) read(1'030, 1'100, 1'110);
  read(1'030, 1'100, 1'120);
  EXPECT_DOUBLE_EQ(*watch.row().value, 2) << "beyond the last bound";

  read(3, 3, 3);
  EXPECT_EQ(watch.row().value, std::nullopt) << "it has started again";
  for (int i = 0; i < 4; ++i) read(13, 13, 13);
  EXPECT_DOUBLE_EQ(*watch.row().value, 0.5);
}

TEST_F(QosWatchTest, ATotalThatFallsBeginsAnew) {
  QosWatch watch(make_rule(Reading::kRate), kReleaseNs);
  run(watch, 10, 0.5);
  EXPECT_DOUBLE_EQ(*watch.row().value, 10);
  totals_.sum = 0;
  for (int i = 0; i < 4; ++i) tick(watch);
  EXPECT_GE(watch.row().value.value_or(0), 0);
  tick(watch);
  EXPECT_DOUBLE_EQ(*watch.row().value, 0);
}

TEST_F(QosWatchTest, AGaugeMustBePastTheLimitThroughoutTheWindow) {
  QosRule rule = make_rule(Reading::kValue);
  rule.metric = Metric::kGpuTemperature;
  rule.limit = 85;
  QosWatch watch(rule, kReleaseNs);
  const auto read = [&](std::optional<double> value) {
    totals_.value = value;
    return tick(watch);
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(read(80), Change::kNone);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(read(90), Change::kNone);
  EXPECT_EQ(read(91), Change::kBreached);
  EXPECT_EQ(*watch.row().value, 90);
  EXPECT_EQ(read(std::nullopt), Change::kNone);
  EXPECT_EQ(watch.row().value, std::nullopt);
}

TEST_F(QosWatchTest, KeepsFewSamplesHoweverLongTheWindow) {
  QosRule rule = make_rule(Reading::kRate);
  rule.window_ns = 600'000'000'000;
  rule.limit = 1e9;
  QosWatch watch(rule, kReleaseNs);
  for (int i = 0; i < 5'000; ++i) {
    totals_.sum += 50;
    tick(watch);
    if (i <= 1'300) continue;
    ASSERT_NEAR(*watch.row().value, 100, 1e-6) << i;
  }
}

}  // namespace
}  // namespace gpuperf
