#include "daemon/state/launch_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gpuperf {
namespace {

// 10,000 launches a second outside of windows, but for what a test says.
class LaunchCostsTest : public testing::Test {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;
  // As BPF programs know it, and as its session does: to a tick of 10 ms.
  static constexpr ProcessKey kProcess{.pid = 70, .start_boot_ns = 12'345'678};
  static constexpr ProcessKey kInSession{.pid = 70, .start_boot_ns = 10'000'000};

  LaunchCostsTest() { costs_.end_reading(now_); }

  void run(uint64_t launches = 10'000) {
    costs_.apply(kProcess, launches);
    now_ += kSecond;
    costs_.end_reading(now_);
  }
  // Half a second within the next reading, in which launches are so far apart.
  void record(int64_t apart_ns, uint64_t launches_after = 10'000) {
    const int64_t begin_ns = now_ + kSecond / 4;
    const int64_t launches = kSecond / 2 / apart_ns;
    const auto first_ns = static_cast<uint64_t>(begin_ns + 3'000'000);  // it takes a while to begin
    costs_.add_window(
        kInSession, {.begin_mono_ns = begin_ns,
                     .end_mono_ns = begin_ns + kSecond / 2,
                     .launches = static_cast<uint64_t>(launches),
                     .first_mono_ns = first_ns,
                     .last_mono_ns = first_ns + static_cast<uint64_t>((launches - 1) * apart_ns)});
    run(8'000);  // of both
    run(launches_after);
    run(launches_after);
  }

  int64_t now_ = kSecond;
  LaunchCosts costs_;
};

TEST_F(LaunchCostsTest, IsHowMuchFartherApartLaunchesAreWhileTheyAreRecorded) {
  run();
  record(100'700);
  record(100'700);
  EXPECT_EQ(costs_.find(kInSession), std::nullopt);  // two may agree by chance
  record(100'700);

  const auto cost = costs_.find(kInSession);
  ASSERT_TRUE(cost);
  EXPECT_NEAR(cost->ns, 700, 1e-6);
  EXPECT_NEAR(cost->error_ns, 0, 1e-6);
  EXPECT_EQ(cost->windows, 3u);
}

TEST_F(LaunchCostsTest, TheErrorIsThatOfAMeanOfFewWindows) {
  run();
  for (const int64_t apart_ns : {100'500, 100'700, 100'900}) record(apart_ns);

  const auto cost = costs_.find(kInSession);
  ASSERT_TRUE(cost);
  EXPECT_NEAR(cost->ns, 700, 1e-6);
  EXPECT_NEAR(cost->error_ns, 4.303 * 200 / std::sqrt(3.0), 1e-6);
}

TEST_F(LaunchCostsTest, WhereTheGpuIsBusyAnywayItIsNothing) {
  run();
  for (int i = 0; i < 20; ++i) record(100'000);

  const auto cost = costs_.find(kInSession);
  ASSERT_TRUE(cost);
  EXPECT_NEAR(cost->ns, 0, 1e-6);
  EXPECT_EQ(cost->windows, LaunchCosts::kWindows);
}

TEST_F(LaunchCostsTest, ALoadThatChangesSaysNothing) {
  run();
  for (int i = 0; i < 5; ++i) {
    record(100'700, 5'000);
    run();
  }
  record(100'700, 0);
  EXPECT_EQ(costs_.find(kInSession), std::nullopt);
}

TEST_F(LaunchCostsTest, NeedsHooksThatCount) {
  for (int i = 0; i < 5; ++i) {
    costs_.add_window(kProcess, {.launches = 10, .first_mono_ns = 1, .last_mono_ns = 100});
    now_ += kSecond;
    costs_.end_reading(now_);
  }
  EXPECT_EQ(costs_.find(kInSession), std::nullopt);
}

TEST_F(LaunchCostsTest, ForgetsAProcess) {
  run();
  for (int i = 0; i < 3; ++i) record(100'700);
  costs_.forget(kProcess);
  EXPECT_EQ(costs_.find(kInSession), std::nullopt);
}

}  // namespace
}  // namespace gpuperf
