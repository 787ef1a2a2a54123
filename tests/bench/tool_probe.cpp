#include "tests/bench/tool_probe.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

namespace gpuperf::bench {
namespace {

using std::chrono::milliseconds;

constexpr auto kToolStart = std::chrono::seconds(30);  // bcc compiles its program first
// Tools attach the return probe right after the entry probe, which is when they are noticed.
constexpr auto kToolSettle = milliseconds(300);

void stop_tool(pid_t pid) {
  kill(pid, SIGINT);
  for (int i = 0; i < 1000; ++i) {  // perf-style probes take 0.1 s each to leave
    if (waitpid(pid, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

Result<Detach> attach_tool(std::vector<std::string> command, const std::function<bool()>& is_felt) {
  const pid_t pid = fork();
  if (pid == 0) {
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  if (pid < 0) return errno_status(errno, "fork");
  const auto deadline = std::chrono::steady_clock::now() + kToolStart;
  while (!is_felt()) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) {
      return absl::UnavailableError(command[0] + ": ended with status " + std::to_string(status) +
                                    (WEXITSTATUS(status) == 127 ? " (not installed)" : ""));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      stop_tool(pid);
      return absl::DeadlineExceededError(command[0] + ": no probe within 30 s");
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  std::this_thread::sleep_for(kToolSettle);
  return Detach([pid] { stop_tool(pid); });
}

}  // namespace gpuperf::bench
