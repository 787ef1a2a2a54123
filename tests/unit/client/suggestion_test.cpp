#include "client/suggestion.h"

#include <gtest/gtest.h>

namespace gpuperf::client {
namespace {

TEST(SuggestionTest, FindsWhatIsFewLettersApart) {
  const std::vector<std::string> known = {"status", "slow", "sessions", "kernels", "top"};

  EXPECT_EQ(find_nearest("kernel", known), "kernels");
  EXPECT_EQ(find_nearest("sesions", known), "sessions");
  EXPECT_EQ(find_nearest("slwo", known), "");
  EXPECT_EQ(find_nearest("sow", known), "slow");
  EXPECT_EQ(find_nearest("stat", known), "status");
  EXPECT_EQ(find_nearest("frobnicate", known), "");
  EXPECT_EQ(find_nearest("", known), "");
  EXPECT_EQ(find_nearest(std::string(10'000, 'k'), known), "");
}

}  // namespace
}  // namespace gpuperf::client
