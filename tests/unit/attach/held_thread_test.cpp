// A thread that is held, and whose holder dies at each stage: it goes on as if nothing had been.

#include "daemon/attach/held_thread.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "daemon/attach/libc_functions.h"
#include "tests/unit/attach/waiting_process.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;

constexpr size_t kScratchBytes = 256;

// Of a forked child: the same as ours.
const LibcFunctions& find_functions() {
  static const LibcFunctions functions = [] {
    const ProcFiles files;
    CodeFiles code_files;
    const auto target = read_attach_target(files, static_cast<uint32_t>(getpid()));
    EXPECT_TRUE(target.ok()) << target.status();
    const auto found = find_libc_functions(files, code_files, *target);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.value_or(LibcFunctions{});
  }();
  return functions;
}

// Makes the thread call getpid by the C library's syscall(), so many times.
Status call_getpid(HeldThread& thread, pid_t pid, int times) {
  for (int i = 0; i < times; ++i) {
    const std::array<uint64_t, 1> words{SYS_getpid};
    const auto result = thread.call(find_functions().syscall, words, words);
    if (!result.ok()) return result.status();
    if (*result != pid) return absl::InternalError("getpid: " + std::to_string(*result));
  }
  return absl::OkStatus();
}

Status begin(HeldThread& thread) {
  Status status = thread.seize();
  if (status.ok()) status = thread.stop();
  if (status.ok()) status = thread.begin_calls(find_functions().restorer, kScratchBytes);
  return status;
}

// In a process of its own, which ends at once afterwards: no destructor lets go.
int hold_and_die(const std::function<bool()>& hold) {
  const pid_t holder = fork();
  if (holder == 0) _exit(hold() ? 0 : 1);
  int status = 0;
  (void)waitpid(holder, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class HeldThreadTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root: traces another process";
  }

  WaitingProcess process_;
};

TEST_F(HeldThreadTest, GoesOnAfterCalls) {
  {
    HeldThread thread(process_.pid());
    ASSERT_TRUE(begin(thread).ok());
    ASSERT_EQ(call_getpid(thread, process_.pid(), 10), absl::OkStatus());
    ASSERT_EQ(thread.let_go(), absl::OkStatus());
    EXPECT_GT(thread.held().count(), 0);
  }

  EXPECT_EQ(process_.finish(), 0);
}

TEST_F(HeldThreadTest, GoesOnWithoutCalls) {
  {
    HeldThread thread(process_.pid());
    ASSERT_EQ(thread.seize(), absl::OkStatus());
    for (int i = 0; i < 40; ++i) {
      Status stopped = thread.stop();
      // It was not back in its wait yet.
      while (absl::IsFailedPrecondition(stopped)) {
        ASSERT_EQ(thread.resume(), absl::OkStatus());
        stopped = thread.stop();
      }
      ASSERT_EQ(stopped, absl::OkStatus());
      ASSERT_EQ(thread.resume(), absl::OkStatus());
    }
  }

  EXPECT_EQ(process_.finish(), 0);
}

TEST_F(HeldThreadTest, GoesOnWhenItsHolderDiesStopped) {
  ASSERT_EQ(hold_and_die([&] {
              auto& thread = *new HeldThread(process_.pid());
              return thread.seize().ok() && thread.stop().ok();
            }),
            0);

  EXPECT_EQ(process_.finish(), 0);
}

TEST_F(HeldThreadTest, GoesOnWhenItsHolderDiesBeforeTheFirstCall) {
  ASSERT_EQ(hold_and_die([&] { return begin(*new HeldThread(process_.pid())).ok(); }), 0);

  EXPECT_EQ(process_.finish(), 0);
}

TEST_F(HeldThreadTest, GoesOnWhenItsHolderDiesAfterAnyNumberOfCalls) {
  for (const int calls : {1, 2, 5}) {
    WaitingProcess process;
    ASSERT_EQ(hold_and_die([&] {
                auto& thread = *new HeldThread(process.pid());
                return begin(thread).ok() && call_getpid(thread, process.pid(), calls).ok();
              }),
              0);

    EXPECT_EQ(process.finish(), 0) << calls << " calls";
  }
}

TEST_F(HeldThreadTest, GoesOnWhenItsHolderDiesWithinACall) {
  for (const int wait_us : {0, 100, 1'000, 20'000}) {
    WaitingProcess process;
    const pid_t holder = fork();
    if (holder == 0) {
      auto& thread = *new HeldThread(process.pid());
      if (!begin(thread).ok()) _exit(1);
      for (;;) (void)call_getpid(thread, process.pid(), 1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(2'000 + wait_us));
    (void)kill(holder, SIGKILL);
    (void)waitpid(holder, nullptr, 0);

    EXPECT_EQ(process.finish(), 0) << wait_us << " us";
  }
}

TEST_F(HeldThreadTest, LeavesACallThatTakesTooLongToItself) {
  {
    HeldThread thread(process_.pid());
    ASSERT_TRUE(begin(thread).ok());
    const timespec longer{.tv_sec = 0, .tv_nsec = 200'000'000};
    ASSERT_TRUE(thread.write(thread.scratch_address(), std::as_bytes(std::span(&longer, 1))).ok());
    const std::array<uint64_t, 3> words{SYS_nanosleep, thread.scratch_address(), 0};

    const auto result = thread.call(find_functions().syscall, words, std::span(words).first(1));

    EXPECT_TRUE(absl::IsDeadlineExceeded(result.status())) << result.status();
  }
  EXPECT_EQ(process_.finish(), 0);
}

TEST_F(HeldThreadTest, SurvivesACallThatCrashes) {
  {
    HeldThread thread(process_.pid());
    ASSERT_TRUE(begin(thread).ok());
    const uint64_t nowhere = 64;
    const std::array<uint64_t, 1> words{SYS_getpid};

    const auto result = thread.call(nowhere, words, words);

    EXPECT_TRUE(absl::IsInternal(result.status())) << result.status();
    EXPECT_EQ(thread.let_go(), absl::OkStatus());
  }
  EXPECT_EQ(process_.finish(), 0);
}

TEST_F(HeldThreadTest, DeliversASignalThatCameMeanwhileAfterwards) {
  {
    HeldThread thread(process_.pid());
    ASSERT_TRUE(begin(thread).ok());
    ASSERT_EQ(kill(process_.pid(), SIGTERM), 0);
    ASSERT_EQ(call_getpid(thread, process_.pid(), 3), absl::OkStatus());
    ASSERT_EQ(thread.let_go(), absl::OkStatus());
  }

  EXPECT_EQ(process_.finish(), 128 + SIGTERM);
}

TEST_F(HeldThreadTest, SaysThatAProcessHasEnded) {
  HeldThread thread(process_.pid());
  ASSERT_TRUE(begin(thread).ok());
  ASSERT_EQ(kill(process_.pid(), SIGKILL), 0);

  EXPECT_TRUE(absl::IsNotFound(call_getpid(thread, process_.pid(), 1)));
}

}  // namespace
}  // namespace gpuperf
