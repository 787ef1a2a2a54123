#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>

namespace gpuperf::client {
namespace {

using std::chrono::steady_clock;

// Far beyond what any step needs, even on a busy machine.
constexpr std::chrono::milliseconds kLimit(30'000);

struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  }
  std::array<int, 2> ends;
};

Pipe open_terminal(const ProgramOptions& options) {
  Pipe sides;
  close(sides.ends[0]);
  close(sides.ends[1]);
  struct winsize window = {};
  window.ws_col = options.terminal_columns;
  window.ws_row = options.terminal_rows;
  if (openpty(&sides.ends[0], &sides.ends[1], nullptr, nullptr, &window) != 0) {
    throw std::runtime_error("openpty failed");
  }
  for (const int fd : sides.ends) fcntl(fd, F_SETFD, FD_CLOEXEC);
  return sides;
}

std::vector<std::string> make_environment(const ProgramOptions& options) {
  std::map<std::string, std::string> variables = {
      {"PATH", "/usr/bin:/bin"}, {"TZ", "UTC"}, {"TERM", "xterm"}};
  for (const auto& [name, value] : options.environment) variables[name] = value;
  std::vector<std::string> lines;
  lines.reserve(variables.size());
  for (const auto& [name, value] : variables) lines.push_back(fmt::format("{}={}", name, value));
  return lines;
}

std::vector<char*> list_pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Program::Program(std::vector<std::string> arguments, ProgramOptions options) {
  Pipe in;
  Pipe err;
  Pipe out = options.terminal ? open_terminal(options) : Pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.ends[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err.ends[1], 2);
  if (!options.output_file.empty()) {
    posix_spawn_file_actions_addopen(&actions, 1, options.output_file.c_str(), O_WRONLY, 0);
  }
  arguments.insert(arguments.begin(), options.program);
  std::vector<std::string> environment = make_environment(options);
  const int error =
      posix_spawnp(&pid_, options.program.c_str(), &actions, nullptr,
                   list_pointers(arguments).data(), list_pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  for (const int fd : {in.ends[0], out.ends[1], err.ends[1]}) close(fd);
  if (error != 0) throw std::runtime_error("cannot run " + options.program);
  // Inputs of these tests fit into a pipe.
  if (write(in.ends[1], options.input.data(), options.input.size()) < 0) {
    throw std::runtime_error("cannot write the program's input");
  }
  close(in.ends[1]);
  out_fd_ = out.ends[0];
  err_fd_ = err.ends[0];
}

Program::~Program() {
  close_output();
  if (err_fd_ >= 0) close(err_fd_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

// One step of reading both; false when both have ended.
bool Program::read_more(std::string& out) {
  std::array<pollfd, 2> watched = {{{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}}};
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  if (poll(watched.data(), watched.size(), static_cast<int>(kLimit.count())) == 0) {
    kill(pid_, SIGKILL);
    throw std::runtime_error("the program said nothing for 30 s and was killed; so far: " + out +
                             err_);
  }
  std::array<char, 65536> buffer;
  const auto take = [&](int& fd, const pollfd& state, std::string& text) {
    if (fd < 0 || state.revents == 0) return;
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count > 0) {
      text.append(buffer.data(), static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {  // a terminal ends with EIO
      close(fd);
      fd = -1;
    }
  };
  take(out_fd_, watched[0], out);
  take(err_fd_, watched[1], err_);
  return true;
}

std::string Program::read_until(const std::string& text) {
  const auto deadline = steady_clock::now() + kLimit;
  size_t found = unread_.find(text);
  while (found == std::string::npos && out_fd_ >= 0 && read_more(unread_)) {
    found = unread_.find(text);
    if (found == std::string::npos && steady_clock::now() > deadline) {
      throw std::runtime_error("the program did not print \"" + text + "\", but: " + unread_);
    }
  }
  const size_t end = found == std::string::npos ? unread_.size() : found + text.size();
  std::string taken = unread_.substr(0, end);
  unread_.erase(0, end);
  return taken;
}

void Program::send_signal(int number) { kill(pid_, number); }

void Program::close_output() {
  if (out_fd_ >= 0) close(out_fd_);
  out_fd_ = -1;
}

ProgramResult Program::finish() {
  while (read_more(unread_)) {
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = std::move(unread_),
          .err = std::move(err_)};
}

ProgramResult run_program(std::vector<std::string> arguments, ProgramOptions options) {
  return Program(std::move(arguments), std::move(options)).finish();
}

}  // namespace gpuperf::client
