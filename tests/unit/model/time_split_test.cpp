#include "daemon/model/time_split.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

namespace gpuperf {
namespace {

using Ticks = std::array<uint32_t, GPUPERF_TICK_KINDS>;  // user space, system call, page fault

uint64_t add_up(const TimeParts& parts) {
  return get_on_cpu_ns(parts) + parts.runnable_ns + parts.throttled_ns + get_blocked_ns(parts);
}

std::array<uint64_t, kWaitKinds> make_waits(WaitKind kind, uint64_t duration_ns) {
  std::array<uint64_t, kWaitKinds> waits_ns{};
  waits_ns[static_cast<size_t>(kind)] = duration_ns;
  return waits_ns;
}

class RandomSplits {
 public:
  explicit RandomSplits(uint32_t seed) : random_(seed) {}

  uint64_t make_ns(int most_bits) { return make_bits() >> (64 - 1 - random_() % most_bits); }
  TimeSplit make(int most_bits) {
    TimeSplit split{.runnable_ns = make_part_ns(most_bits),
                    .throttled_ns = make_part_ns(most_bits)};
    for (uint64_t& wait_ns : split.waits_ns) wait_ns = make_part_ns(most_bits);
    for (uint32_t& ticks : split.ticks)
      ticks = random_() % 3 == 0 ? 0 : random_() >> random_() % 32;
    return split;
  }

 private:
  uint64_t make_bits() { return uint64_t{random_()} << 32 | random_(); }
  uint64_t make_part_ns(int most_bits) { return random_() % 2 == 0 ? 0 : make_ns(most_bits); }

  std::mt19937 random_;
};

TEST(TimePartsTest, AddUpToTheDurationWhateverTheSplit) {
  constexpr int kMostBits = 59;  // 18 years; nine such parts are below 2^64
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomSplits random(seed);

  for (int i = 0; i < 100'000; ++i) {
    const TimeSplit split = random.make(kMostBits);
    const uint64_t duration_ns = random.make_ns(kMostBits);

    const TimeParts parts = make_time_parts(split, duration_ns);

    ASSERT_EQ(add_up(parts), duration_ns) << "round " << i;
  }
}

TEST(TimePartsTest, KeepTheTimeOffTheCpuAsItWasCounted) {
  const std::array<uint64_t, kWaitKinds> waits_ns = {1, 2, 3, 4, 5, 6, 7};
  const TimeSplit split{.runnable_ns = 10, .throttled_ns = 20, .waits_ns = waits_ns};

  EXPECT_EQ(
      make_time_parts(split, 1058),
      (TimeParts{
          .on_cpu_user_ns = 1000, .runnable_ns = 10, .throttled_ns = 20, .blocked_ns = waits_ns}));
}

TEST(TimePartsTest, ShareTheTimeOnTheCpuByTheSamples) {
  const TimeSplit split{.runnable_ns = 1'000, .ticks = Ticks{1, 2, 5}};

  EXPECT_EQ(make_time_parts(split, 9'000), (TimeParts{.on_cpu_user_ns = 1'000,
                                                      .on_cpu_kernel_ns = 2'000,
                                                      .on_cpu_fault_ns = 5'000,
                                                      .runnable_ns = 1'000}));
}

TEST(TimePartsTest, ShareOutNoMoreThanThereIsWhereADoubleRoundsUp) {
  constexpr uint64_t kDurationNs = (uint64_t{1} << 53) + 3;  // the nearest double is 1 more

  EXPECT_EQ(make_time_parts({.ticks = Ticks{0, 1, 0}}, kDurationNs),
            TimeParts{.on_cpu_kernel_ns = kDurationNs});
  EXPECT_EQ(make_time_parts({.ticks = Ticks{0, 0, 1}}, kDurationNs),
            TimeParts{.on_cpu_fault_ns = kDurationNs});
}

TEST(TimePartsTest, GiveWhatTheSharesLeaveOverToUserSpace) {
  const TimeSplit split{.ticks = Ticks{0, 1, 2}};

  EXPECT_EQ(make_time_parts(split, 100),
            (TimeParts{.on_cpu_user_ns = 1, .on_cpu_kernel_ns = 33, .on_cpu_fault_ns = 66}));
}

TEST(TimePartsTest, CountTheTimeOnTheCpuAsUserSpaceWithoutSamples) {
  EXPECT_EQ(make_time_parts({}, 5'000), TimeParts{.on_cpu_user_ns = 5'000});
}

TEST(TimePartsTest, TakeTimeBeyondTheDurationOffTheLongestWait) {
  const TimeSplit split{.runnable_ns = 300,
                        .throttled_ns = 200,
                        .waits_ns = make_waits(WaitKind::kIo, 600),
                        .ticks = Ticks{1, 1, 1}};

  EXPECT_EQ(
      make_time_parts(split, 1'000),
      (TimeParts{
          .runnable_ns = 300, .throttled_ns = 200, .blocked_ns = make_waits(WaitKind::kIo, 500)}));
}

TEST(TimePartsTest, TakeTimeBeyondTheDurationOffTheWaitForACpuWhereThatIsLongest) {
  const TimeSplit split{
      .runnable_ns = 900, .throttled_ns = 200, .waits_ns = make_waits(WaitKind::kIo, 100)};

  EXPECT_EQ(
      make_time_parts(split, 1'000),
      (TimeParts{
          .runnable_ns = 700, .throttled_ns = 200, .blocked_ns = make_waits(WaitKind::kIo, 100)}));
}

TEST(TimePartsTest, TakeTimeBeyondTheDurationOffTheThrottlingWhereThatIsLongest) {
  const TimeSplit split{.runnable_ns = 100, .throttled_ns = 950};

  EXPECT_EQ(make_time_parts(split, 1'000), (TimeParts{.runnable_ns = 100, .throttled_ns = 900}));
}

TEST(TimePartsTest, TakeMoreThanTheLargestPartOffTheNextOnesToo) {
  const TimeSplit split{
      .runnable_ns = 400, .throttled_ns = 300, .waits_ns = make_waits(WaitKind::kGpu, 500)};

  EXPECT_EQ(make_time_parts(split, 350), (TimeParts{.runnable_ns = 50, .throttled_ns = 300}));
}

TEST(TimePartsTest, AreAllZeroForADurationOfZero) {
  const TimeSplit split{.runnable_ns = 5,
                        .throttled_ns = 5,
                        .waits_ns = make_waits(WaitKind::kFutex, 5),
                        .ticks = Ticks{1, 1, 1}};

  EXPECT_EQ(make_time_parts({}, 0), TimeParts{});
  EXPECT_EQ(make_time_parts(split, 0), TimeParts{});
}

TEST(TimePartsTest, SumTheThreePartsOnTheCpuAndEveryKindOfWait) {
  const TimeParts parts{.on_cpu_user_ns = 1,
                        .on_cpu_kernel_ns = 20,
                        .on_cpu_fault_ns = 300,
                        .runnable_ns = 4'000,
                        .throttled_ns = 50'000,
                        .blocked_ns = {1, 2, 3, 4, 5, 6, 7}};

  EXPECT_EQ(get_on_cpu_ns(parts), 321u);
  EXPECT_EQ(get_blocked_ns(parts), 28u);
}

TEST(MainWaitTest, IsTheKindWithTheMostTime) {
  for (size_t kind = 0; kind < kWaitKinds; ++kind) {
    TimeParts parts;
    parts.blocked_ns.fill(10);
    parts.blocked_ns[kind] = 11;

    EXPECT_EQ(find_main_wait(parts), static_cast<WaitKind>(kind));
  }
}

TEST(MainWaitTest, IsNoneOfACallThatNeverBlocked) {
  EXPECT_EQ(find_main_wait({.on_cpu_user_ns = 9, .runnable_ns = 9, .throttled_ns = 9}),
            std::nullopt);
}

TEST(SyscallNameTest, IsThatOfTheKernel) {
  EXPECT_EQ(get_syscall_name(0), "read");
  EXPECT_EQ(get_syscall_name(16), "ioctl");
  EXPECT_EQ(get_syscall_name(202), "futex");
  EXPECT_EQ(get_syscall_name(232), "epoll_wait");
  EXPECT_EQ(get_syscall_name(455), "futex_wait");
}

TEST(SyscallNameTest, IsTheNumberWhereThereIsNoName) {
  EXPECT_EQ(get_syscall_name(2), "syscall 2");
  EXPECT_EQ(get_syscall_name(999), "syscall 999");
}

TEST(SyscallNameTest, IsEmptyForNone) { EXPECT_EQ(get_syscall_name(-1), ""); }

TEST(FileKindNameTest, GoesByTheTypeAndNotByThePermissions) {
  EXPECT_EQ(get_file_kind_name(S_IFIFO | 0600), "pipe");
  EXPECT_EQ(get_file_kind_name(S_IFSOCK | 0777), "socket");
  EXPECT_EQ(get_file_kind_name(S_IFREG | 0644), "file");
  EXPECT_EQ(get_file_kind_name(S_IFDIR | 0755), "directory");
  EXPECT_EQ(get_file_kind_name(S_IFCHR | 0666), "device");
  EXPECT_EQ(get_file_kind_name(S_IFBLK | 0660), "device");
}

TEST(FileKindNameTest, IsEmptyForNoneAndForWhatHasNoType) {
  EXPECT_EQ(get_file_kind_name(0), "");
  EXPECT_EQ(get_file_kind_name(0600), "");  // an eventfd's
  EXPECT_EQ(get_file_kind_name(S_IFLNK | 0777), "");
}

// Contract names: they are in the API.
TEST(WaitKindNameTest, IsItsOwnForEveryKindOfTheKernelSide) {
  std::vector<std::string_view> names;
  for (size_t kind = 0; kind < kWaitKinds; ++kind) {
    names.push_back(get_wait_kind_name(static_cast<WaitKind>(kind)));
  }

  EXPECT_EQ(names, (std::vector<std::string_view>{"other", "futex", "io", "poll", "gpu", "sleep",
                                                  "page_fault"}));
  EXPECT_EQ(get_wait_kind_name(static_cast<WaitKind>(GPUPERF_WAIT_FAULT)), "page_fault");
}

TEST(ThreadStateNameTest, IsItsOwnForEveryStateOfTheKernelSide) {
  EXPECT_EQ(get_thread_state_name(static_cast<ThreadState>(GPUPERF_THREAD_RUNNING)), "running");
  EXPECT_EQ(get_thread_state_name(static_cast<ThreadState>(GPUPERF_THREAD_RUNNABLE)), "runnable");
  EXPECT_EQ(get_thread_state_name(static_cast<ThreadState>(GPUPERF_THREAD_BLOCKED)), "blocked");
}

}  // namespace
}  // namespace gpuperf
