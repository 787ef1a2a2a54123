#include "daemon/state/past_hooks.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

constexpr ProcessKey kProcess{.pid = 7, .start_boot_ns = 1};
constexpr uint32_t kLaunch = 3, kCopy = 4;

class PastHooksTest : public testing::Test {
 protected:
  void count(uint32_t function_id, uint64_t calls, uint64_t hooked, bool is_launch = true) {
    past_.apply({.function_id = function_id, .process = kProcess, .calls = calls, .hooked = hooked},
                is_launch);
  }
  using Found = std::vector<PastHooks::Found>;
  PastHooks past_;
};

TEST_F(PastHooksTest, FindsWhatProbesCountBetweenWindowsOfHooks) {
  for (int i = 0; i < 2; ++i) {
    count(kLaunch, 10, 10);
    EXPECT_EQ(past_.end_window(), Found{});
  }
  count(kLaunch, 10, 8);
  count(kCopy, 5, 0);
  count(9, 100, 0, false);
  EXPECT_EQ(past_.end_window(), Found{});
  count(kLaunch, 10, 10);
  EXPECT_EQ(past_.end_window(), (Found{{kProcess, kLaunch, 2}, {kProcess, kCopy, 5}}));
  count(kLaunch, 10, 10);
  EXPECT_EQ(past_.end_window(), Found{}) << "told once";
}

TEST_F(PastHooksTest, DoesNotBlameHooksThatTakeOverOrGiveWay) {
  count(kLaunch, 10, 0);
  EXPECT_EQ(past_.end_window(), Found{});
  count(kLaunch, 10, 6);  // a daemon's notes came in the middle
  EXPECT_EQ(past_.end_window(), Found{});
  count(kLaunch, 10, 10);
  EXPECT_EQ(past_.end_window(), Found{});
  count(kLaunch, 10, 4);  // and went
  EXPECT_EQ(past_.end_window(), Found{});
  for (int i = 0; i < 3; ++i) {
    count(kLaunch, 10, 0);
    EXPECT_EQ(past_.end_window(), Found{});
  }
}

TEST_F(PastHooksTest, ForgetsAProcessThatHasGone) {
  for (int i = 0; i < 3; ++i) {
    count(kLaunch, 10, 9);
    (void)past_.end_window();
  }
  past_.apply(ProcessExited{kProcess});
  EXPECT_EQ(past_.end_window(), Found{});
}

}  // namespace
}  // namespace gpuperf
