#include "daemon/state/nccl_waits.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

TEST(NcclWaitsTest, FindsTheLastAndWhatTheOthersWait) {
  NcclWaits waits;

  const auto wait = waits.add(
      {{.slot = 0, .mono_ns = 100}, {.slot = 1, .mono_ns = 400}, {.slot = 2, .mono_ns = 150}});

  EXPECT_EQ(
      wait,
      (NcclWaits::Wait{
          .late_slot = 1, .begin_mono_ns = 150, .caused_ns = 250, .waited_ns = {300, 0, 250}}));
}

TEST(NcclWaitsTest, CountsTimeOnceWhereARankRunsAhead) {
  NcclWaits waits;
  (void)waits.add({{.slot = 0, .mono_ns = 100}, {.slot = 1, .mono_ns = 300}});

  const auto wait = waits.add({{.slot = 0, .mono_ns = 110}, {.slot = 1, .mono_ns = 310}});

  EXPECT_EQ(wait->caused_ns, 10u);
  EXPECT_EQ(wait->waited_ns, (std::vector<uint64_t>{10, 0}));
}

TEST(NcclWaitsTest, NeedsTwoRanks) {
  NcclWaits waits;

  EXPECT_EQ(waits.add({{.slot = 0, .mono_ns = 100}}), std::nullopt);
  EXPECT_EQ(waits.add({}), std::nullopt);
}

}  // namespace
}  // namespace gpuperf
