#include "daemon/collect/slow_shares.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint32_t kNobody = 65'534;
constexpr ProcessKey kFlood{.pid = 7, .start_boot_ns = 1};
constexpr ProcessKey kHonest{.pid = 8, .start_boot_ns = 1};

class SlowSharesTest : public testing::Test {
 protected:
  // How many of so many at once are admitted.
  uint64_t admit(uint64_t count, uint32_t uid, const ProcessKey& process, bool is_worst = false) {
    uint64_t admitted = 0;
    for (uint64_t i = 0; i < count; ++i) {
      admitted += shares_.admit(uid, process, is_worst, now_mono_ns_) ? 1 : 0;
    }
    return admitted;
  }

  SlowShares shares_;
  int64_t now_mono_ns_ = kSecond;
};

TEST_F(SlowSharesTest, LetsAllOfASecondGoToOneProcess) {
  EXPECT_EQ(admit(5'000, 0, kHonest), SlowShares::kPerSecond);
}

TEST_F(SlowSharesTest, KeepsAShareForAProcessThatComesAfterAFlood) {
  (void)admit(100'000, 0, kFlood);

  EXPECT_EQ(admit(400, 0, kHonest), 400u);
}

TEST_F(SlowSharesTest, GivesAUserOneShareHoweverManyProcessesHeHas) {
  for (uint32_t pid = 100; pid < 200; ++pid) (void)admit(10'000, kNobody, {.pid = pid});

  EXPECT_EQ(admit(400, 0, kHonest), 400u);
}

TEST_F(SlowSharesTest, BoundsTheWorstToo) {
  EXPECT_EQ(admit(100'000, kNobody, kFlood, true), 2 * SlowShares::kPerSecond);
}

TEST_F(SlowSharesTest, BeginsAnewEachSecond) {
  (void)admit(100'000, 0, kFlood);
  now_mono_ns_ += kSecond;

  EXPECT_EQ(admit(5'000, 0, kFlood), SlowShares::kPerSecond);
}

TEST_F(SlowSharesTest, TellsNoMoreProcessesApartThanItsBound) {
  for (uint32_t pid = 1; pid <= SlowShares::kMaxProcesses; ++pid) {
    (void)admit(1, 0, {.pid = pid});
  }

  EXPECT_EQ(admit(1, 0, {.pid = 1'000'000}), 0u);
}

}  // namespace
}  // namespace gpuperf
