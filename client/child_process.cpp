#include "client/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace gpuperf::client {
namespace {

using Pipe = std::array<int, 2>;

// All of it, or what there is before the end.
std::string read_all(int fd) {
  std::string bytes;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count > 0) bytes.append(buffer.data(), static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return bytes;
  }
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // the reader is gone, which its end says
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

// In the child: waits to be told, then becomes the command. "go\0NAME=VALUE\0…" until the end.
[[noreturn]] void become(std::vector<std::string>& command, int go_fd, int failed_fd,
                         const sigset_t& mask) {
  const std::string told = read_all(go_fd);
  if (!told.starts_with(std::string_view("go\0", 3))) _exit(0);
  for (size_t begin = 3; begin < told.size();) {
    const size_t end = told.find('\0', begin);
    const std::string line = told.substr(begin, end - begin);
    const size_t equals = line.find('=');
    setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 1);
    begin = end + 1;
  }
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  signal(SIGPIPE, SIG_DFL);  // ours is ignored, and that would be inherited
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(words[0], words.data());
  const int error_number = errno;
  write_all(failed_fd, {reinterpret_cast<const char*>(&error_number), sizeof error_number});
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::make(std::vector<std::string> command) {
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  Pipe go = {-1, -1};
  Pipe failed = {-1, -1};
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0 || pipe2(go.data(), O_CLOEXEC) != 0 || pipe2(failed.data(), O_CLOEXEC) != 0) {
    return absl::InternalError(fmt::format(
        "cannot start the command: {}; stop other programs and try again", strerror(errno)));
  }
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t pid = fork();
  if (pid == 0) {
    close(go[1]);  // or its end would never be seen
    become(command, go[0], failed[1], before);
  }
  const int error_number = errno;
  close(go[0]);
  close(failed[1]);
  std::unique_ptr<ChildProcess> child(
      new ChildProcess(pid < 0 ? 0 : pid, go[1], failed[0], signal_fd, before));
  if (pid >= 0) return child;
  return absl::InternalError(fmt::format(
      "cannot start the command: {}; stop other programs and try again", strerror(error_number)));
}

ChildProcess::ChildProcess(pid_t pid, int go_fd, int failed_fd, int signal_fd,
                           const sigset_t& mask_before)
    : pid_(pid),
      go_fd_(go_fd),
      failed_fd_(failed_fd),
      signal_fd_(signal_fd),
      mask_before_(mask_before) {}

ChildProcess::~ChildProcess() {
  if (go_fd_ >= 0) close(go_fd_);
  if (pid_ > 0) {
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close(failed_fd_);
  close(signal_fd_);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

int ChildProcess::release(const Environment& environment) {
  std::string told("go\0", 3);
  for (const auto& [name, value] : environment) {
    told += name + "=" + value;
    told += '\0';
  }
  write_all(go_fd_, told);
  close(std::exchange(go_fd_, -1));
  const std::string failed = read_all(failed_fd_);  // its end is closed by a good exec
  int error_number = 0;
  if (failed.size() == sizeof error_number) {
    memcpy(&error_number, failed.data(), sizeof error_number);
  }
  return error_number;
}

bool ChildProcess::take_signal(int& number, bool& from_terminal) {
  signalfd_siginfo taken = {};
  if (read(signal_fd_, &taken, sizeof taken) != sizeof taken) return false;
  number = static_cast<int>(taken.ssi_signo);
  from_terminal = taken.ssi_code == SI_KERNEL;
  return true;
}

int ChildProcess::wait() {
  const int process_fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  for (;;) {
    // Without a descriptor of the process it is looked at ten times a second.
    std::array<pollfd, 2> watched = {{{signal_fd_, POLLIN, 0}, {process_fd, POLLIN, 0}}};
    (void)poll(watched.data(), watched.size(), process_fd < 0 ? 100 : -1);
    int number = 0;
    bool from_terminal = false;
    while (take_signal(number, from_terminal)) {
      if (!from_terminal) kill(pid_, number);
    }
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
    pid_ = 0;
    if (process_fd >= 0) close(process_fd);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

bool ChildProcess::sleep(std::chrono::nanoseconds duration) {
  pollfd watched = {signal_fd_, POLLIN, 0};
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  (void)poll(&watched, 1, static_cast<int>(milliseconds));
  int number = 0;
  bool from_terminal = false;
  return !take_signal(number, from_terminal);
}

}  // namespace gpuperf::client
