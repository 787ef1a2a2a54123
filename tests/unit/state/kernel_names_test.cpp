#include "daemon/state/kernel_names.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

constexpr ProcessKey kFirst{.pid = 7, .start_boot_ns = 1};
constexpr ProcessKey kSecond{.pid = 7, .start_boot_ns = 2};

class KernelNamesTest : public testing::Test {
 protected:
  DropCounters drops_;
  KernelNames names_{drops_, 3};
};

TEST_F(KernelNamesTest, KeepsTheHandlesOfProcessesApart) {
  names_.apply(HandleNamed{kFirst, 0x10, "a"});
  names_.apply(HandleNamed{kSecond, 0x10, "b"});

  EXPECT_EQ(names_.find(kFirst, 0x10), "a");
  EXPECT_EQ(names_.find(kSecond, 0x10), "b");
  EXPECT_EQ(names_.find(kFirst, 0x11), std::nullopt);
}

TEST_F(KernelNamesTest, TakesTheNewestNameOfAHandle) {
  names_.apply(HandleNamed{kFirst, 0x10, "a"});
  names_.apply(HandleNamed{kFirst, 0x10, "b"});

  EXPECT_EQ(names_.find(kFirst, 0x10), "b");
}

TEST_F(KernelNamesTest, GivesAHandleTheNameOfTheOneItStandsFor) {
  names_.apply(HandleNamed{kFirst, 0x10, "a"});
  names_.apply(HandleNamed{kFirst, 0x20, "", 0x10});
  names_.apply(HandleNamed{kFirst, 0x30, "", 0x11});

  EXPECT_EQ(names_.find(kFirst, 0x20), "a");
  EXPECT_EQ(names_.find(kFirst, 0x30), std::nullopt);
}

TEST_F(KernelNamesTest, ForgetsNamesWithTheirProcess) {
  names_.apply(HandleNamed{kFirst, 0, "a"});
  names_.apply(HandleNamed{kFirst, UINT64_MAX, "b"});
  names_.apply(HandleNamed{kSecond, 0, "c"});

  names_.apply(ProcessExited{kFirst});

  EXPECT_EQ(names_.find(kFirst, 0), std::nullopt);
  EXPECT_EQ(names_.find(kFirst, UINT64_MAX), std::nullopt);
  EXPECT_EQ(names_.find(kSecond, 0), "c");
}

TEST_F(KernelNamesTest, DropsTheNameUsedLongestAgoWhenFull) {
  names_.apply(HandleNamed{kFirst, 1, "a"});
  names_.apply(HandleNamed{kFirst, 2, "b"});
  names_.apply(HandleNamed{kFirst, 3, "c"});
  (void)names_.find(kFirst, 1);
  names_.apply(HandleNamed{kFirst, 2, "b"});

  names_.apply(HandleNamed{kFirst, 4, "d"});

  EXPECT_EQ(names_.find(kFirst, 3), std::nullopt);
  EXPECT_EQ(names_.find(kFirst, 1), "a");
  EXPECT_EQ(names_.find(kFirst, 2), "b");
  EXPECT_EQ(names_.find(kFirst, 4), "d");
  EXPECT_EQ(drops_.get(DropCause::kNamesFull), 1u);
}

TEST_F(KernelNamesTest, FindsRoomAgainWhenAProcessHasGone) {
  for (uint64_t handle = 1; handle <= 3; ++handle) names_.apply(HandleNamed{kFirst, handle, "a"});
  names_.apply(ProcessExited{kFirst});
  for (uint64_t handle = 1; handle <= 3; ++handle) names_.apply(HandleNamed{kSecond, handle, "b"});

  EXPECT_EQ(names_.find(kSecond, 1), "b");
  EXPECT_EQ(drops_.get(DropCause::kNamesFull), 0u);
}

}  // namespace
}  // namespace gpuperf
