#include "daemon/owner/thread_look.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gpuperf {
namespace {

constexpr int64_t kStepNs = 200'000'000;

NcclActivity judge(const ThreadReading& now) {
  return judge_activity({.mono_ns = now.mono_ns - kStepNs, .state = 'R'}, now);
}

TEST(ThreadLookTest, TellsWhatAThreadDoes) {
  const int64_t now_ns = 5 * kStepNs;
  EXPECT_EQ(judge({.mono_ns = now_ns, .state = 'T'}), NcclActivity::kStopped);
  EXPECT_EQ(judge({.mono_ns = now_ns, .state = 'R'}), NcclActivity::kRunning);
  EXPECT_EQ(judge({.mono_ns = now_ns, .state = 'R', .runnable_ns = 150'000'000}),
            NcclActivity::kRunnable);
  EXPECT_EQ(judge({.mono_ns = now_ns,
                   .state = 'R',
                   .runnable_ns = 150'000'000,
                   .throttled_ns = 30'000'000}),
            NcclActivity::kThrottled);
  EXPECT_EQ(judge({.mono_ns = now_ns, .state = 'S', .syscall = SYS_read}), NcclActivity::kIo);
  EXPECT_EQ(judge({.mono_ns = now_ns, .state = 'S', .syscall = SYS_futex}), NcclActivity::kLock);
  EXPECT_EQ(judge({.mono_ns = now_ns, .state = 'S', .syscall = SYS_clock_nanosleep}),
            NcclActivity::kSleep);
  EXPECT_EQ(judge({.mono_ns = now_ns, .state = 'D', .syscall = SYS_ioctl}), NcclActivity::kDriver);
  EXPECT_EQ(judge({.mono_ns = now_ns, .state = 'D'}), NcclActivity::kOtherWait);
  EXPECT_EQ(judge({.mono_ns = now_ns}), NcclActivity::kUnknown);
}

TEST(ThreadLookTest, ComparesOnlyWithAReadingBefore) {
  EXPECT_EQ(judge_activity({}, {.mono_ns = 1, .state = 'R', .throttled_ns = 1'000'000'000}),
            NcclActivity::kRunning);
  EXPECT_EQ(judge_activity({.mono_ns = 1, .state = 'R', .throttled_ns = 500},
                           {.mono_ns = kStepNs, .state = 'R', .throttled_ns = 100}),
            NcclActivity::kRunning)
      << "it has another control group";
}

class ThreadReaderTest : public ::testing::Test {
 protected:
  ThreadReaderTest() {
    std::filesystem::create_directories(root_ / "proc/7");
    write("proc/7/stat", "7 (a b) S 1 7 7 0 -1 0 0 0");
    write("proc/7/syscall", "35 0x1 0x2 0x3");
    write("proc/7/schedstat", "1000 2000 30");
  }
  ~ThreadReaderTest() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  ThreadReading read() const {
    return ThreadReader((root_ / "proc").string(), (root_ / "cgroup").string()).read(7, 7, 5);
  }
  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) / ("thread_look_" + std::to_string(::getpid()));
};

TEST_F(ThreadReaderTest, ReadsAThreadAndTheQuotasAroundIt) {
  write("proc/7/cgroup", "0::/pod/box\n");
  write("cgroup/pod/box/cpu.stat", "usage_usec 5\nthrottled_usec 7\n");
  write("cgroup/pod/cpu.stat", "throttled_usec 2\n");

  EXPECT_EQ(
      read(),
      (ThreadReading{
          .mono_ns = 5, .state = 'S', .syscall = 35, .runnable_ns = 2'000, .throttled_ns = 9'000}));
}

TEST_F(ThreadReaderTest, KnowsControlGroupsOfVersion1) {
  write("proc/7/cgroup", "3:memory:/box\n2:cpu,cpuacct:/box\n0::/else\n");
  write("cgroup/cpu/box/cpu.stat", "nr_periods 3\nthrottled_time 9\n");

  EXPECT_EQ(read().throttled_ns, 9u);
}

TEST_F(ThreadReaderTest, KnowsThatAThreadIsGone) {
  std::filesystem::remove_all(root_ / "proc/7");

  EXPECT_EQ(read(), ThreadReading{.mono_ns = 5});
}

}  // namespace
}  // namespace gpuperf
