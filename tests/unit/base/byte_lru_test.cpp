#include "daemon/base/byte_lru.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

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

TEST(ByteLruTest, LetsThoseGoThatACallerChooses) {
  std::vector<int> left;
  ByteLru<int, int> lru(100, [&left](int key) { left.push_back(key); });
  for (int i = 0; i < 4; ++i) lru.put(i, 10 * i, 10);

  lru.erase_if([](int key, int value) { return key % 2 == 1 || value == 0; });

  EXPECT_THAT(left, ::testing::ElementsAre(0, 1, 3));
  EXPECT_EQ(lru.bytes(), 10u);
  EXPECT_EQ(*lru.find(2), 20);
}

TEST(ByteLruTest, TellsOfEachThatLeaves) {
  std::vector<int> left;
  ByteLru<int, int> lru(100, [&left](int key) { left.push_back(key); });
  for (int i = 0; i < 10; ++i) lru.put(i, i, 10);

  lru.put(10, 10, 25);

  EXPECT_THAT(left, testing::ElementsAre(0, 1, 2));
}

TEST(ByteLruTest, TellsOfOneThatIsLargerThanTheBound) {
  std::vector<int> left;
  ByteLru<int, int> lru(100, [&left](int key) { left.push_back(key); });
  lru.put(1, 1, 50);

  EXPECT_FALSE(lru.put(1, 2, 101));

  EXPECT_THAT(left, testing::ElementsAre(1));
  EXPECT_EQ(lru.find(1), nullptr);
}

TEST(ByteLruTest, TellsOfNoneThatIsReplacedOrCleared) {
  std::vector<int> left;
  ByteLru<int, int> lru(100, [&left](int key) { left.push_back(key); });
  lru.put(1, 1, 50);

  lru.put(1, 2, 60);
  lru.clear();

  EXPECT_THAT(left, testing::IsEmpty());
}

TEST(ByteLruTest, KeepsKeysByTheirHash) {
  ByteLru<std::string, int, std::hash<std::string>> lru(100);
  for (int i = 0; i < 10; ++i) lru.put(std::to_string(i), i, 10);

  lru.put("ten", 10, 15);

  EXPECT_EQ(lru.find("0"), nullptr);
  EXPECT_EQ(lru.find("1"), nullptr);
  ASSERT_NE(lru.find("2"), nullptr);
  EXPECT_EQ(*lru.find("ten"), 10);
  EXPECT_EQ(lru.bytes(), 95u);
}

}  // namespace
}  // namespace gpuperf
