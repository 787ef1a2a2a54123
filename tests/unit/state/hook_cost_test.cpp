#include "daemon/state/hook_cost.h"

#include <gtest/gtest.h>

#include <optional>

namespace gpuperf {
namespace {

constexpr double kEach = HookCost::kAftermath;

TEST(HookCostTest, IsTheMeanOfWhatWasTimedAndItsAftermath) {
  HookCost cost;
  cost.apply(HookCost::kCallsMin - 1, 3'000);
  EXPECT_EQ(cost.ns(), std::nullopt) << "too few";
  cost.apply(20, 4'000);
  EXPECT_DOUBLE_EQ(*cost.ns(), kEach * 200);
}

TEST(HookCostTest, FollowsAChangeWithinHalfAMinute) {
  HookCost cost;
  uint64_t calls = 0, ns = 0;
  const auto run = [&](int seconds, uint64_t each_ns) {
    for (int i = 0; i < seconds; ++i) cost.apply(calls += 10, ns += 10 * each_ns);
  };
  run(100, 100);
  EXPECT_DOUBLE_EQ(*cost.ns(), kEach * 100);
  run(60, 500);
  EXPECT_NEAR(*cost.ns(), kEach * 500, kEach * 100);
}

TEST(HookCostTest, StaysWithinBoundsWhateverAProcessSays) {
  HookCost cost;
  cost.apply(100, UINT64_MAX);
  EXPECT_EQ(*cost.ns(), HookCost::kMostNs);
  cost.apply(50, 10);
  cost.apply(60, 5);
  cost.apply(UINT64_MAX, UINT64_MAX);
  cost.apply(0, 0);
  EXPECT_EQ(*cost.ns(), HookCost::kMostNs)
      << "totals that fall, or rise beyond all sense, are left out";
  for (uint64_t i = 1; i <= 100; ++i) cost.apply(100 * i, 100 * i);
  EXPECT_NEAR(*cost.ns(), kEach, 1) << "and it recovers";
}

}  // namespace
}  // namespace gpuperf
