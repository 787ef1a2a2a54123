#include "daemon/base/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuperf {
namespace {

using Verdict = Shares::Verdict;

uint64_t take_all(Shares& shares, uint32_t uid, uint32_t pid = 0) {
  uint64_t taken = 0;
  while (shares.take({.uid = uid, .pid = pid}) == Verdict::kTaken) ++taken;
  return taken;
}

TEST(SharesTest, KeepsWhatIsRoots) {
  Shares shares({.total = 100, .kept_for_root = 20});
  uint64_t of_others = 0;
  for (uint32_t uid = 1; uid <= 100; ++uid) of_others += take_all(shares, uid);

  EXPECT_EQ(of_others, 80u);
  EXPECT_EQ(take_all(shares, 0), 20u);
  EXPECT_EQ(shares.take({.uid = 0}), Verdict::kFull);
}

TEST(SharesTest, LeavesANewcomerAPlace) {
  Shares shares({.total = 896});

  EXPECT_EQ(take_all(shares, 1), 673u);
  EXPECT_EQ(shares.take({.uid = 1}), Verdict::kUserFull);
  EXPECT_EQ(take_all(shares, 2), 168u);
  EXPECT_EQ(take_all(shares, 3), 42u);
  EXPECT_GE(take_all(shares, 4), 9u);
}

TEST(SharesTest, HoldsUsersAndProcessesToTheirBounds) {
  Shares shares({.total = 100, .kept_for_root = 10, .of_user = 5, .of_root = 7, .of_process = 3});

  EXPECT_EQ(take_all(shares, 1, 71), 3u);
  EXPECT_EQ(shares.take({.uid = 1, .pid = 71}), Verdict::kProcessFull);
  EXPECT_EQ(take_all(shares, 1, 72), 2u);
  EXPECT_EQ(shares.take({.uid = 1, .pid = 73}), Verdict::kUserFull);
  EXPECT_EQ(take_all(shares, 0, 74), 3u);
  EXPECT_EQ(take_all(shares, 0, 75), 3u);
  EXPECT_EQ(take_all(shares, 0, 76), 1u);
}

TEST(SharesTest, TakesBackWhatWasHeldAndForgetsWhoHoldsNothing) {
  Shares shares({.total = 10, .of_user = 6});
  EXPECT_EQ(shares.take({.uid = 1, .pid = 71}, 6), Verdict::kTaken);
  EXPECT_EQ(shares.take({.uid = 1, .pid = 71}, 1), Verdict::kUserFull);

  shares.give_back({.uid = 1, .pid = 71}, 6);

  EXPECT_EQ(shares.used(), 0u);
  EXPECT_EQ(shares.of_user(1), 0u);
  EXPECT_EQ(shares.take({.uid = 1, .pid = 71}, 6), Verdict::kTaken);
}

TEST(SharesTest, TakesNothingBeyondTheTotalWhoeverAsks) {
  Shares shares({.total = 10, .kept_for_root = 2});
  EXPECT_EQ(shares.take({.uid = 0}, 9), Verdict::kTaken);

  EXPECT_EQ(shares.take({.uid = 1}, 2), Verdict::kFull);
  EXPECT_EQ(shares.take({.uid = 1}, 1), Verdict::kTaken);
  EXPECT_EQ(shares.take({.uid = 0}, 1), Verdict::kFull);
}

}  // namespace
}  // namespace gpuperf
