#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/status.h"

namespace gpuperf::client {

// A command of the user: forked at once, run when it is told to, so that what watches it can be
// ready before its first instruction.
//
// Thread: one, which must be the only one at make(): what runs between fork and exec is ordinary
// code. Owns the process until it has been waited for: one that was not released ends without
// having run anything.
// Signals: SIGINT, SIGTERM and SIGHUP are blocked for this process, and passed on to the command
// while it runs; those that a terminal sends to both are left to the command.
class ChildProcess {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  static Result<std::unique_ptr<ChildProcess>> make(std::vector<std::string> command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Lets it run, with these beside its environment. 0, or the errno of a command that cannot be
  // run.
  int release(const Environment& environment);
  // Until it ends. As a shell tells it: its exit code, or 128 and its signal.
  int wait();
  // False when a signal asked to end meanwhile.
  bool sleep(std::chrono::nanoseconds duration);

 private:
  ChildProcess(pid_t pid, int go_fd, int failed_fd, int signal_fd, const sigset_t& mask_before);
  bool take_signal(int& number, bool& from_terminal);

  pid_t pid_;  // 0 = has been waited for
  int go_fd_;
  int failed_fd_;
  int signal_fd_;
  sigset_t mask_before_;
};

}  // namespace gpuperf::client
