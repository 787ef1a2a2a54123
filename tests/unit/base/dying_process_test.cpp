#include "daemon/base/dying_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "daemon/base/listen_address.h"
#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

// A process whose first thread has ended while another goes on, as in one that was killed and of
// which the kernel holds a thread.
pid_t start_headless_listener(HostPort& address) {
  const Result<Fd> listening = listen_on(address, 1);
  EXPECT_TRUE(listening.ok()) << listening.status();
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);  // this thread alone, without unwinding the test
  }
  return child;  // from here on the child alone listens
}

bool has_first_thread_ended(pid_t pid) {
  const Result<char> state = read_process_state("/proc", static_cast<uint32_t>(pid));
  return state.ok() && *state == 'Z';
}

TEST(DyingProcessTest, ItsPortsCanBeTakenOnceItNoLongerListens) {
  HostPort address{.host = "127.0.0.1", .port = 0};
  const pid_t child = start_headless_listener(address);
  ASSERT_GT(child, 0);
  while (!has_first_thread_ended(child)) std::this_thread::yield();
  EXPECT_TRUE(is_dying("/proc", static_cast<uint32_t>(child)));
  HostPort tried = address;
  EXPECT_TRUE(absl::IsAlreadyExists(listen_on(tried, 1).status()));

  stop_listening_of(static_cast<uint32_t>(child));

  const Result<Fd> taken = listen_on(tried, 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (!taken.ok() && geteuid() != 0) GTEST_SKIP() << "needs CAP_SYS_PTRACE: " << taken.status();
  EXPECT_TRUE(taken.ok()) << taken.status();
}

TEST(DyingProcessTest, AProcessThatIsGoneHasNothingToStop) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);

  stop_listening_of(static_cast<uint32_t>(child));

  EXPECT_FALSE(is_dying("/proc", static_cast<uint32_t>(child)));
}

}  // namespace
}  // namespace gpuperf
