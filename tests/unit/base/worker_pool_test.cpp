#include "daemon/base/worker_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <thread>

#include "tests/unit/files.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;
using testing::IsEmpty;
using testing::SizeIs;

// Workers of this very program, that of process memory: an empty request, of pid 0, is answered
// with nothing.
const std::string kRequest(8, '\0');

std::string get_folder(pid_t pid) { return "/proc/" + std::to_string(pid); }

// It is a zombie then.
void end(pid_t pid) {
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  while (read_file(get_folder(pid) + "/stat").find(") Z ") == std::string::npos) {
    std::this_thread::yield();
  }
}

TEST(WorkerPoolTest, AsksOneWorkerAgainAndAgain) {
  WorkerPool pool({.role = "memory"});

  const auto first = pool.ask(kRequest, {}, milliseconds(5'000));
  ASSERT_TRUE(first.ok()) << first.status();
  const std::vector<pid_t> pids = pool.list_idle();
  ASSERT_TRUE(pool.ask(kRequest, {}, milliseconds(5'000)).ok());

  EXPECT_THAT(pids, SizeIs(1));
  EXPECT_EQ(pool.list_idle(), pids);
}

TEST(WorkerPoolTest, GivesAWorkerItsSocketAndNothingElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may look at a worker";
  const Fd secret(::open("/etc/passwd", O_RDONLY));  // not even closed on exec
  WorkerPool pool({.role = "memory"});
  ASSERT_TRUE(pool.prepare().ok());
  const std::string folder = get_folder(pool.list_idle().front());

  std::multiset<std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd")) {
    const std::string target = std::filesystem::read_symlink(entry.path()).string();
    open.insert(target.substr(0, target.find('[')));
  }
  EXPECT_EQ(open, (std::multiset<std::string>{"/dev/null", "/dev/null", "/dev/null", "socket:"}));
  EXPECT_EQ(read_file(folder + "/environ"), "");
  const std::string status = read_file(folder + "/status");
  EXPECT_NE(status.find("Seccomp:\t2\n"), std::string::npos) << status;
  EXPECT_NE(status.find("NoNewPrivs:\t1\n"), std::string::npos) << status;
  EXPECT_NE(status.find("CapEff:\t0000000000080000\n"), std::string::npos) << status;
}

TEST(WorkerPoolTest, LeavesALateOneBehindAndAsksAnother) {
  WorkerPool pool({.role = "memory"});
  ASSERT_TRUE(pool.prepare().ok());
  const pid_t first = pool.list_idle().front();
  ASSERT_EQ(::kill(first, SIGSTOP), 0);

  const auto late = pool.ask(kRequest, {}, milliseconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  EXPECT_TRUE(pool.ask(kRequest, {}, milliseconds(5'000)).ok());
  EXPECT_NE(pool.list_idle().front(), first);
}

TEST(WorkerPoolTest, AsksAnotherWhereTheIdleOneHasEnded) {
  WorkerPool pool({.role = "memory"});
  ASSERT_TRUE(pool.prepare().ok());
  end(pool.list_idle().front());

  EXPECT_TRUE(pool.ask(kRequest, {}, milliseconds(5'000)).ok());
}

TEST(WorkerPoolTest, LeavesNoZombie) {
  WorkerPool pool({.role = "memory"});
  ASSERT_TRUE(pool.prepare().ok());
  const pid_t pid = pool.list_idle().front();
  end(pid);

  pool.reap();

  EXPECT_FALSE(std::filesystem::exists(get_folder(pid)));
  EXPECT_THAT(pool.list_idle(), IsEmpty());
}

TEST(WorkerPoolTest, AsksNothingWhileTooManyDoNotEnd) {
  WorkerPool pool({.role = "memory", .max_dying = 0});

  EXPECT_TRUE(absl::IsUnavailable(pool.ask(kRequest, {}, milliseconds(1)).status()));
}

TEST(WorkerPoolTest, SaysThatARoleIsNotKnown) {
  WorkerPool pool({.role = "nothing"});

  EXPECT_TRUE(absl::IsUnavailable(pool.ask(kRequest, {}, milliseconds(1)).status()));
}

}  // namespace
}  // namespace gpuperf
