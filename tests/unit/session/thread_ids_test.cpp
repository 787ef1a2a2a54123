#include "daemon/session/thread_ids.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "daemon/base/process_status.h"

namespace gpuperf {
namespace {

class ThreadIdsTest : public testing::Test {
 protected:
  ThreadIdsTest() { std::filesystem::create_directories(root_ / "71/task"); }
  ~ThreadIdsTest() override { std::filesystem::remove_all(root_); }

  void add_thread(uint32_t tid, uint32_t inner_tid) {
    const auto folder = root_ / "71/task" / std::to_string(tid);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "status") << "Name:\tx\nNSpid:\t" << tid << "\t" << inner_tid << "\n";
  }

  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("gpuperf_threads_" + std::to_string(getpid()));
  ThreadScanBudget budget_;
};

TEST_F(ThreadIdsTest, KnowsThreadsOfItsOwnNamespaceByTheirId) {
  ThreadIds threads("/proc", static_cast<uint32_t>(getpid()), true, budget_);

  EXPECT_EQ(threads.find(static_cast<uint32_t>(gettid())), static_cast<uint32_t>(gettid()));
  EXPECT_EQ(threads.find(999'999), 999'999u);  // gone by now, as far as anybody knows
  EXPECT_EQ(threads.find(0), 0u);
}

TEST_F(ThreadIdsTest, FindsThreadsOfAnotherNamespace) {
  add_thread(700, 1);
  add_thread(701, 9);
  ThreadIds threads(root_.string(), 71, false, budget_);

  EXPECT_EQ(threads.find(9), 701u);
  EXPECT_EQ(threads.find(1), 700u);
}

TEST_F(ThreadIdsTest, RemembersThreadsThatHaveGone) {
  add_thread(700, 1);
  ThreadIds threads(root_.string(), 71, false, budget_);
  (void)threads.find(1);

  std::filesystem::remove_all(root_ / "71");

  EXPECT_EQ(threads.find(1), 700u);
}

TEST_F(ThreadIdsTest, ScansNoMoreThanItsShareOfTime) {
  add_thread(700, 1);
  ThreadIds threads(root_.string(), 71, false, budget_);
  const int64_t now_ns =
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  budget_.note_scan(now_ns - 1'000'000'000, now_ns);

  EXPECT_EQ(threads.find(1), 0u);
}

TEST_F(ThreadIdsTest, LooksForFewThreadsPerMessage) {
  add_thread(700, 1);
  ThreadIds threads(root_.string(), 71, false, budget_);
  (void)threads.find(1);  // its scan uses the share of time up
  for (uint32_t i = 0; i < ThreadIds::kLooksPerMessage; ++i) (void)threads.find(4'000'000 + i);
  add_thread(701, 9);

  EXPECT_EQ(threads.find(9), 0u);
  EXPECT_EQ(threads.find(1), 700u);
}

TEST(ProcStatusTest, ReadsTheInnermostId) {
  EXPECT_EQ(parse_inner_id("Name:\tx\nNSpid:\t71\t9\t2\nNSpgid:\t1\n", 71).id, 2u);
  EXPECT_FALSE(parse_inner_id("Name:\tx\nNSpid:\t71\t2\n", 71).is_namespace_ours);
  EXPECT_TRUE(parse_inner_id("Name:\tx\nNSpid:\t71\n", 71).is_namespace_ours);
  EXPECT_EQ(parse_inner_id("Name:\tx\n", 71).id, 71u);
  EXPECT_EQ(parse_inner_id("", 71).id, 71u);
}

}  // namespace
}  // namespace gpuperf
