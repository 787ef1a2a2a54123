#include "tests/unit/unwind/commanded_child.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "daemon/base/proc_text.h"
#include "tests/unit/unwind/blocked_stack.h"

namespace gpuperf {

struct Report {
  BlockedStack stack;
};

namespace {

constexpr uint64_t kTickNs = 10'000'000;
constexpr size_t kPageBytes = 4096;

uint64_t to_number(const void* address) { return reinterpret_cast<uint64_t>(address); }

uint64_t map(uint64_t address, size_t length_bytes, int flags, int fd) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const mapped = mmap(wanted, length_bytes, PROT_READ | PROT_EXEC,
                            MAP_PRIVATE | flags | (address != 0 ? MAP_FIXED : 0), fd, 0);
  return mapped == MAP_FAILED ? 0 : to_number(mapped);
}

}  // namespace

CommandedChild::CommandedChild() {
  void* memory[1];
  (void)backtrace(memory, 1);  // loads what it needs: not in the child
  void* const shared =
      mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || pipe2(input_, O_CLOEXEC) != 0 || pipe2(output_, O_CLOEXEC) != 0) {
    throw std::runtime_error("a child's pipes");
  }
  report_ = static_cast<Report*>(shared);
  pid_ = fork();
  if (pid_ == 0) obey();
}

CommandedChild::~CommandedChild() {
  kill();
  for (const int fd : {input_[0], input_[1], output_[0], output_[1]}) close(fd);
  munmap(report_, sizeof(Report));
}

ProcessKey CommandedChild::key() const {
  return {.pid = pid(), .start_boot_ns = read_start_ticks("/proc", pid()).value_or(0) * kTickNs};
}

void CommandedChild::obey() {
  static void* library = nullptr;
  for (Command command; read(input_[0], &command, sizeof command) == sizeof command;) {
    uint64_t answer = 1;
    switch (command.what) {
      case 'o':
        library = dlopen(command.text[0], RTLD_LAZY);
        answer = library == nullptr ? 0 : to_number(dlsym(library, command.text[1]));
        break;
      case 'c':
        answer = dlclose(library) == 0 ? 1 : 0;
        break;
      case 'm':
        answer = map(0, kMappedBytes, MAP_ANONYMOUS, -1);
        break;
      case 'f':
        answer = map(command.address, kPageBytes, 0, open(command.text[0], O_RDONLY | O_CLOEXEC));
        break;
      case 'u':
        answer = munmap(reinterpret_cast<void*>(command.address), kMappedBytes) == 0 ? 1 : 0;
        break;
      case 'x':
        dup2(input_[0], STDIN_FILENO);
        dup2(output_[1], STDOUT_FILENO);
        execl("/bin/cat", "cat", nullptr);
        break;
      case 'b':
        block_in_known_functions(report_->stack, output_[1], input_[0]);
        break;
    }
    if (write(output_[1], &answer, sizeof answer) != sizeof answer) break;
  }
  _exit(0);
}

uint64_t CommandedChild::send(const Command& command) {
  uint64_t answer = 0;
  if (write(input_[1], &command, sizeof command) != sizeof command ||
      read(output_[0], &answer, sizeof answer) != sizeof answer || answer == 0) {
    throw std::runtime_error(std::string("a child's command ") + command.what);
  }
  return answer;
}

uint64_t CommandedChild::open_library(const std::string& path, const std::string& function) {
  Command command{.what = 'o'};
  std::snprintf(command.text[0], sizeof command.text[0], "%s", path.c_str());
  std::snprintf(command.text[1], sizeof command.text[1], "%s", function.c_str());
  return send(command);
}

void CommandedChild::close_library() { (void)send({.what = 'c'}); }

uint64_t CommandedChild::map_memory() { return send({.what = 'm'}); }

uint64_t CommandedChild::map_file(const std::string& path, uint64_t address) {
  Command command{.what = 'f', .address = address};
  std::snprintf(command.text[0], sizeof command.text[0], "%s", path.c_str());
  return send(command);
}

void CommandedChild::unmap(uint64_t address) { (void)send({.what = 'u', .address = address}); }

// The program has begun when it copies the bytes of an answer from its input to its output.
void CommandedChild::exec() {
  const Command command{.what = 'x'};
  const uint64_t answer = 1;
  uint64_t copied = 0;
  if (write(input_[1], &command, sizeof command) != sizeof command ||
      write(input_[1], &answer, sizeof answer) != sizeof answer ||
      read(output_[0], &copied, sizeof copied) != sizeof copied || copied != answer) {
    throw std::runtime_error("a child's exec");
  }
}

void CommandedChild::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

CommandedChild::Blocked CommandedChild::block() {
  (void)send({.what = 'b'});
  const BlockedStack& stack = report_->stack;
  return {.live = {.sp = stack.sp, .bp = stack.bp, .thread_pointer = stack.thread_pointer},
          .callers = {stack.callers, stack.callers + stack.caller_count}};
}

}  // namespace gpuperf
