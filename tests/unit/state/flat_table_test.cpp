#include "daemon/state/flat_table.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <map>
#include <random>

namespace gpuperf {
namespace {

TEST(FlatTableTest, FindsNothingWhereThereIsNothing) {
  FlatTable<uint32_t, int> table;

  EXPECT_EQ(table.find(0), nullptr);
  table.erase(0);
  table.erase_if([](uint32_t, int) { return true; });
  EXPECT_EQ(table.size(), 0u);
}

template <int kRunBits>
void compare_with_map() {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  FlatTable<uint32_t, uint32_t, kRunBits> table;
  std::map<uint32_t, uint32_t> expected;

  for (uint32_t step = 0; step < 50'000; ++step) {
    const uint32_t key =
        random() % 700;  // more than are in it at once, so that runs form and break
    const uint32_t what = random() % 1'000;
    if (what < 500) {
      table.get(key) = step;
      expected[key] = step;
    } else if (what < 998) {
      table.erase(key);
      expected.erase(key);
    } else {
      const auto leaves = [](uint32_t, uint32_t value) { return value % 3 == 0; };
      table.erase_if(leaves);
      std::erase_if(expected, [&](const auto& entry) { return leaves(entry.first, entry.second); });
    }
    ASSERT_EQ(table.size(), expected.size());
  }

  for (uint32_t key = 0; key < 700; ++key) {
    const uint32_t* found = table.find(key);
    const auto known = expected.find(key);
    ASSERT_EQ(found != nullptr, known != expected.end()) << key;
    if (found != nullptr) {
      EXPECT_EQ(*found, known->second);
    }
  }
}

TEST(FlatTableTest, KeepsWhatAMapKeeps) { compare_with_map<0>(); }

TEST(FlatTableTest, KeepsWhatAMapKeepsInRuns) { compare_with_map<4>(); }

// As a hostile process could send them: all with one home, and before a long run of others. By the
// time that it takes: with every key moved past every other, minutes.
TEST(FlatTableTest, TakesKeysThatFallTogether) {
  constexpr uint32_t kCount = 100'000;
  FlatTable<uint32_t, uint32_t, 4> table;
  for (uint32_t i = 0; i < kCount; ++i) table.get(i) = i;

  for (uint32_t i = 1; i < 0x3f00; ++i) table.get(i << 18) = i;

  EXPECT_EQ(table.size(), kCount + 0x3effu);
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(*table.find(i), i);
  for (uint32_t i = 1; i < 0x3f00; ++i) ASSERT_EQ(*table.find(i << 18), i);
}

TEST(FlatTableTest, TakesTheLargestKeys) {
  FlatTable<uint64_t, int, 4> table;

  table.get(UINT64_MAX) = 1;
  table.get(0) = 2;

  EXPECT_EQ(*table.find(UINT64_MAX), 1);
  EXPECT_EQ(*table.find(0), 2);
}

// What is in use, whether by brk() or by mmap().
size_t get_heap_bytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

TEST(FlatTableTest, AClearedTableHoldsNoMemory) {
  FlatTable<uint64_t, uint64_t> table;
  const size_t before_bytes = get_heap_bytes();
  for (uint64_t key = 1; key <= 10'000; ++key) table.get(key) = key;
  const size_t full_bytes = get_heap_bytes();

  table.clear();

  EXPECT_GT(full_bytes, before_bytes + 160'000);
  EXPECT_LT(get_heap_bytes(), before_bytes + 1'000);
  EXPECT_EQ(table.find(1), nullptr);
}

}  // namespace
}  // namespace gpuperf
