#include "daemon/gpu/limit_window.h"

#include <gtest/gtest.h>

#include "tests/unit/gpu/fake_gpus.h"

namespace gpuperf {
namespace {

constexpr uint64_t kHwThermalBit = 0x40;

const ClockLimitState& get(const LimitWindow& window, ClockLimit limit) {
  return window.states()[static_cast<size_t>(limit)];
}

// Looks a second apart; `total_ns` of the hardware's thermal slowdown in each.
void add_totals(LimitWindow& window, int first_second, const std::vector<uint64_t>& totals_ns) {
  for (size_t i = 0; i < totals_ns.size(); ++i) {
    LimitWindow::Look look{.mono_ns = (first_second + static_cast<int64_t>(i)) * kSecondNs,
                           .active_bits = 0};
    look.total_ns[static_cast<size_t>(ClockLimit::kHwThermal)] = totals_ns[i];
    window.add(look);
  }
}

TEST(LimitWindowTest, TakesSharesFromTheCountersOfTheGpu) {
  LimitWindow window;

  add_totals(window, 100,
             {5'000'000'000, 5'250'000'000, 5'250'000'000, 6'000'000'000, 6'000'000'000});

  EXPECT_DOUBLE_EQ(get(window, ClockLimit::kHwThermal).minute_ratio, 0.25);
  EXPECT_EQ(get(window, ClockLimit::kHwThermal).total_ns, 6'000'000'000);
}

TEST(LimitWindowTest, CountsLooksWhereTheGpuHasNoCounters) {
  LimitWindow window;

  for (int second = 100; second <= 110; ++second) {
    window.add({.mono_ns = second * kSecondNs, .active_bits = second > 106 ? kHwThermalBit : 0});
  }

  EXPECT_DOUBLE_EQ(get(window, ClockLimit::kHwThermal).minute_ratio, 0.4);
  EXPECT_EQ(get(window, ClockLimit::kHwThermal).total_ns, std::nullopt);
}

TEST(LimitWindowTest, SaysSinceWhenALimitIsActive) {
  LimitWindow window;

  for (int second = 100; second <= 105; ++second) {
    window.add({.mono_ns = second * kSecondNs, .active_bits = second >= 103 ? kHwThermalBit : 0});
  }
  EXPECT_TRUE(get(window, ClockLimit::kHwThermal).is_active);
  EXPECT_EQ(get(window, ClockLimit::kHwThermal).since_mono_ns, 103 * kSecondNs);
  window.add({.mono_ns = 106 * kSecondNs, .active_bits = 0});

  EXPECT_FALSE(get(window, ClockLimit::kHwThermal).is_active);
  EXPECT_EQ(get(window, ClockLimit::kHwThermal).since_mono_ns, 0);
}

TEST(LimitWindowTest, ForgetsWhatIsOlderThanAMinute) {
  LimitWindow window;

  for (int second = 0; second <= 90; ++second) {
    window.add({.mono_ns = second * kSecondNs, .active_bits = second <= 60 ? kHwThermalBit : 0});
  }

  EXPECT_DOUBLE_EQ(get(window, ClockLimit::kHwThermal).minute_ratio, 0.5);
}

TEST(LimitWindowTest, TakesACounterThatBeganAnewAsItIs) {
  LimitWindow window;

  add_totals(window, 100, {9'000'000'000, 500'000'000});

  EXPECT_DOUBLE_EQ(get(window, ClockLimit::kHwThermal).minute_ratio, 0.5);
}

TEST(LimitWindowTest, IsNeverMoreThanAllOfTheTime) {
  LimitWindow window;

  add_totals(window, 100, {0, 1'100'000'000});

  EXPECT_DOUBLE_EQ(get(window, ClockLimit::kHwThermal).minute_ratio, 1);
}

}  // namespace
}  // namespace gpuperf
