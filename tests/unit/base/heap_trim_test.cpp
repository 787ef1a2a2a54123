#include "daemon/base/heap_trim.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
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

TEST(HeapTrimTest, TrimsNowAndThenWithoutHavingSeenAnythingFreed) {
  HeapTrim trim;
  EXPECT_TRUE(trim.look(HeapTrim::kLongestNs));
  EXPECT_FALSE(trim.look(2 * HeapTrim::kLongestNs - 1));
  EXPECT_TRUE(trim.look(2 * HeapTrim::kLongestNs - 1 + HeapTrim::kPeriodNs));
}

size_t read_resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t all_pages = 0, resident_pages = 0;
  statm >> all_pages >> resident_pages;
  return resident_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Doubles like a vector, in steps that malloc takes from the heap after the first of them.
void grow_and_free() {
  for (int round = 0; round < 3; ++round) {
    std::vector<char> table;
    while (table.size() < size_t{8} << 20) table.push_back('x');
  }
}

TEST(HeapTrimTest, GivesBackWhatAThreadFreedAtTheEndOfItsHeap) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer has a heap of its own";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process without heaps of other tests
  const auto grow_and_trim = [] {
    set_up_heap();
    (void)malloc_trim(0);
    const size_t before_bytes = read_resident_bytes();
    std::thread(grow_and_free).join();
    (void)malloc_trim(0);
    constexpr size_t kSlackBytes = size_t{2} << 20;
    std::exit(read_resident_bytes() < before_bytes + kSlackBytes ? 0 : 1);
  };

  EXPECT_EXIT(grow_and_trim(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpuperf
