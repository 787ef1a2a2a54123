#include "tests/unit/attach/waiting_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

enum Difference { kNone, kResult, kVector, kGeneral, kMask, kErrno };

struct Marks {
  std::array<uint64_t, 2> mark{0x0123456789abcdef, 0xfedcba9876543210};
  std::array<std::array<uint64_t, 2>, 16> vectors{};
  std::array<uint64_t, 5> general{};
};

// What the frame of a signal gives back is exactly this; a system call changes rcx and r11 only.
long read_marked(int fd, char* byte, Marks& marks) {
  long result = SYS_read;
  register Marks* where __asm__("r8") = &marks;
  __asm__ volatile(
      "movdqu (%%r8), %%xmm0; movdqa %%xmm0, %%xmm1; movdqa %%xmm0, %%xmm2\n"
      "movdqa %%xmm0, %%xmm3; movdqa %%xmm0, %%xmm4; movdqa %%xmm0, %%xmm5\n"
      "movdqa %%xmm0, %%xmm6; movdqa %%xmm0, %%xmm7; movdqa %%xmm0, %%xmm8\n"
      "movdqa %%xmm0, %%xmm9; movdqa %%xmm0, %%xmm10; movdqa %%xmm0, %%xmm11\n"
      "movdqa %%xmm0, %%xmm12; movdqa %%xmm0, %%xmm13; movdqa %%xmm0, %%xmm14\n"
      "movdqa %%xmm0, %%xmm15\n"
      "mov (%%r8), %%rbx; mov %%rbx, %%r12; mov %%rbx, %%r13; mov %%rbx, %%r14; mov %%rbx, %%r15\n"
      "syscall\n"
      "movdqu %%xmm0, 16(%%r8); movdqu %%xmm1, 32(%%r8); movdqu %%xmm2, 48(%%r8)\n"
      "movdqu %%xmm3, 64(%%r8); movdqu %%xmm4, 80(%%r8); movdqu %%xmm5, 96(%%r8)\n"
      "movdqu %%xmm6, 112(%%r8); movdqu %%xmm7, 128(%%r8); movdqu %%xmm8, 144(%%r8)\n"
      "movdqu %%xmm9, 160(%%r8); movdqu %%xmm10, 176(%%r8); movdqu %%xmm11, 192(%%r8)\n"
      "movdqu %%xmm12, 208(%%r8); movdqu %%xmm13, 224(%%r8); movdqu %%xmm14, 240(%%r8)\n"
      "movdqu %%xmm15, 256(%%r8)\n"
      "mov %%rbx, 272(%%r8); mov %%r12, 280(%%r8); mov %%r13, 288(%%r8)\n"
      "mov %%r14, 296(%%r8); mov %%r15, 304(%%r8)\n"
      : "+a"(result)
      : "D"(static_cast<long>(fd)), "S"(byte), "d"(1L), "r"(where)
      : "rbx", "rcx", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
        "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
        "xmm15", "memory");
  return result;
}

Difference wait_and_compare(int fd) {
  Marks marks;
  char byte = 0;
  sigset_t mask;
  (void)sigemptyset(&mask);
  (void)sigaddset(&mask, SIGUSR2);
  (void)sigprocmask(SIG_SETMASK, &mask, nullptr);
  errno = EDOM;
  if (read_marked(fd, &byte, marks) != 1 || byte != 'x') return kResult;
  const int error = errno;
  for (const auto& vector : marks.vectors) {
    if (vector != marks.mark) return kVector;
  }
  for (const uint64_t word : marks.general) {
    if (word != marks.mark[0]) return kGeneral;
  }
  sigset_t now;
  (void)sigprocmask(SIG_BLOCK, nullptr, &now);
  for (int signal = 1; signal < 32; ++signal) {
    if (sigismember(&now, signal) != (signal == SIGUSR2 ? 1 : 0)) return kMask;
  }
  return error == EDOM ? kNone : kErrno;
}

bool is_in_read(pid_t pid) {
  const auto text = read_bounded_text("/proc/" + std::to_string(pid) + "/syscall", 64);
  return text.ok() && text->text.starts_with("0 ");
}

}  // namespace

WaitingProcess::WaitingProcess() {
  int ends[2];
  if (pipe(ends) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(wait_and_compare(ends[0]));
  }
  (void)close(ends[0]);
  go_on_ = Fd(ends[1]);
  while (!is_in_read(pid_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

WaitingProcess::~WaitingProcess() {
  if (pid_ <= 0) return;
  (void)kill(pid_, SIGKILL);
  (void)waitpid(pid_, nullptr, 0);
}

int WaitingProcess::finish() {
  const auto before = signal(SIGPIPE, SIG_IGN);  // a signal may have ended it
  (void)!write(go_on_.get(), "x", 1);
  (void)signal(SIGPIPE, before);
  int status = 0;
  (void)waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace gpuperf
