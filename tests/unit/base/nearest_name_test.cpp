#include "daemon/base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuperf {
namespace {

TEST(NearestNameTest, IsFewLettersApart) {
  const std::vector<std::string_view> known = {"status", "slow", "sessions", "kernels", "top"};

  EXPECT_EQ(find_nearest_name("kernel", known), "kernels");
  EXPECT_EQ(find_nearest_name("sesions", known), "sessions");
  EXPECT_EQ(find_nearest_name("slwo", known), "slow");
  EXPECT_EQ(find_nearest_name("sow", known), "slow");
  EXPECT_EQ(find_nearest_name("frobnicate", known), std::nullopt);
  EXPECT_EQ(find_nearest_name("", known), std::nullopt);
  EXPECT_EQ(find_nearest_name(std::string(100'000, 'k'), known), std::nullopt);
}

TEST(NearestNameTest, OrALongerOrShorterForm) {
  const std::vector<std::string_view> known = {"recent", "stacks", "listen", "log_per_second"};

  EXPECT_EQ(find_nearest_name("recnet", known), "recent");
  EXPECT_EQ(find_nearest_name("stack", known), "stacks");
  EXPECT_EQ(find_nearest_name("log", known), "log_per_second");
  EXPECT_EQ(find_nearest_name("second", known), "log_per_second");
  EXPECT_EQ(find_nearest_name("port", known), std::nullopt);
}

}  // namespace
}  // namespace gpuperf
