#include "daemon/base/heap_trim.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace gpuperf {
namespace {

TEST(HeapTrimTest, TrimsOnceMuchWasFreedAndThatHasSettled) {
  HeapTrim trim;
  int64_t now_ns = HeapTrim::kLongestNs - 4 * HeapTrim::kPeriodNs;
  EXPECT_FALSE(trim.look(now_ns));
  std::vector<std::unique_ptr<char[]>> pieces;
  for (int i = 0; i < 8'192; ++i) pieces.push_back(std::make_unique<char[]>(1'024));
  EXPECT_FALSE(trim.look(now_ns += HeapTrim::kPeriodNs));

  pieces.clear();

  EXPECT_FALSE(trim.look(now_ns += HeapTrim::kPeriodNs));
  EXPECT_FALSE(trim.look(now_ns + HeapTrim::kPeriodNs - 1));
  EXPECT_TRUE(trim.look(now_ns += HeapTrim::kPeriodNs));
  EXPECT_FALSE(trim.look(now_ns += HeapTrim::kPeriodNs));
}

}  // namespace
}  // namespace gpuperf
