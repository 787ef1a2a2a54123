#include "daemon/resolve/byte_lru.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuperf {
namespace {

TEST(ByteLruTest, KeepsValuesUpToTheBoundAndLetsTheLeastRecentlyUsedGo) {
  ByteLru<int, std::string> lru(100);
  EXPECT_TRUE(lru.put(1, "one", 40));
  EXPECT_TRUE(lru.put(2, "two", 40));
  ASSERT_NE(lru.find(1), nullptr);

  EXPECT_TRUE(lru.put(3, "three", 60));

  EXPECT_EQ(lru.find(2), nullptr);
  ASSERT_NE(lru.find(1), nullptr);
  EXPECT_EQ(*lru.find(1), "one");
  EXPECT_EQ(*lru.find(3), "three");
  EXPECT_EQ(lru.bytes(), 100u);
}

TEST(ByteLruTest, LetsSeveralGoForALargeOne) {
  ByteLru<int, int> lru(100);
  for (int i = 0; i < 10; ++i) lru.put(i, i, 10);

  lru.put(10, 10, 95);

  for (int i = 0; i < 10; ++i) EXPECT_EQ(lru.find(i), nullptr) << i;
  EXPECT_EQ(*lru.find(10), 10);
  EXPECT_EQ(lru.bytes(), 95u);
}

TEST(ByteLruTest, DoesNotKeepWhatIsLargerThanTheBoundAndKeepsTheRest) {
  ByteLru<int, int> lru(100);
  lru.put(1, 1, 100);

  EXPECT_FALSE(lru.put(2, 2, 101));

  EXPECT_EQ(lru.find(2), nullptr);
  EXPECT_NE(lru.find(1), nullptr);
}

TEST(ByteLruTest, ReplacesAValueAndItsBytes) {
  ByteLru<int, int> lru(100);
  lru.put(1, 1, 90);

  lru.put(1, 2, 20);

  EXPECT_EQ(*lru.find(1), 2);
  EXPECT_EQ(lru.bytes(), 20u);
}

}  // namespace
}  // namespace gpuperf
