#include "daemon/attach/held_thread.h"

#include <elf.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

namespace gpuperf {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kRedZoneBytes = 128;
constexpr size_t kMaxXstateBytes = 16'384;  // with AMX some 11,000
constexpr uint64_t kUserCode = 0x33;        // code segment of 64-bit programs
constexpr uint64_t kDirectionFlag = 0x400, kTrapFlag = 0x100;

constexpr uint64_t make_bit(int signal) { return uint64_t{1} << (signal - 1); }
// While calls are made. Not those that an instruction causes: blocked, they would end the process
// before we see them.
constexpr uint64_t kBlocked =
    ~(make_bit(SIGSEGV) | make_bit(SIGBUS) | make_bit(SIGFPE) | make_bit(SIGILL) |
      make_bit(SIGTRAP) | make_bit(SIGSYS) | make_bit(SIGKILL) | make_bit(SIGSTOP));

constexpr int kSystemCallStop = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD

int get_event(int status) { return status >> 16; }

long trace(__ptrace_request request, pid_t tid, unsigned long address, void* data) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what it is differs by request
  return ptrace(request, tid, reinterpret_cast<void*>(address), data);
}

void* as_data(unsigned long value) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<void*>(value);
}

Status trace_error(int error, const char* what) {
  if (error == ESRCH) return absl::NotFoundError(std::string(what) + ": the thread has ended");
  return errno_status(error, what);
}

bool is_kernel_restart(uint64_t rax) {
  const auto result = static_cast<int64_t>(rax);
  return result == -512 || result == -513 || result == -514 || result == -516;
}

}  // namespace

bool is_restartable_wait(uint64_t system_call) {
  switch (system_call) {
    case __NR_futex:
    case __NR_poll:
    case __NR_ppoll:
    case __NR_epoll_wait:
    case __NR_epoll_pwait:
    case 441:  // epoll_pwait2
    case __NR_select:
    case __NR_pselect6:
    case __NR_nanosleep:
    case __NR_clock_nanosleep:
    case __NR_read:
    case __NR_readv:
    case __NR_recvfrom:
    case __NR_recvmsg:
    case __NR_accept:
    case __NR_accept4:
    case __NR_wait4:
    case __NR_waitid:
    case __NR_restart_syscall:
      return true;
    default:
      return false;
  }
}

HeldThread::~HeldThread() {
  if (where_ == Where::kNone) return;
  if (where_ == Where::kRunning || where_ == Where::kCalling) {
    if (!interrupt(kStopTimeout).ok()) return;
  }
  // In a call, or back from one: the frame gives back what it had.
  detach(0);
}

Status HeldThread::seize() {
  // Says that a thread has stopped.
  sigset_t stops;
  (void)sigemptyset(&stops);
  (void)sigaddset(&stops, SIGCHLD);
  (void)pthread_sigmask(SIG_BLOCK, &stops, nullptr);
  if (trace(PTRACE_SEIZE, tid_, 0, as_data(PTRACE_O_TRACESYSGOOD)) != 0) {
    return trace_error(errno, "ptrace");
  }
  where_ = Where::kRunning;
  return absl::OkStatus();
}

Result<int> HeldThread::wait_for_stop(std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  sigset_t stops;
  (void)sigemptyset(&stops);
  (void)sigaddset(&stops, SIGCHLD);
  for (;;) {
    int status = 0;
    const pid_t got = waitpid(tid_, &status, __WALL | WNOHANG);
    if (got == tid_) {
      if (WIFSTOPPED(status)) return status;
      where_ = Where::kNone;
      return absl::NotFoundError("the thread has ended");
    }
    if (got < 0 && errno != EINTR) {
      where_ = Where::kNone;
      return absl::NotFoundError("the thread has ended");
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return absl::DeadlineExceededError("the thread did not stop in time");
    // Asleep, so that the thread gets the CPU that it needs to stop. Blocked, SIGCHLD waits.
    const timespec longest{.tv_sec = 0, .tv_nsec = left.count()};
    (void)sigtimedwait(&stops, nullptr, &longest);
  }
}

Status HeldThread::interrupt(std::chrono::milliseconds timeout) {
  stopped_at_ = where_ == Where::kRunning ? steady_clock::now() : stopped_at_;
  if (trace(PTRACE_INTERRUPT, tid_, 0, nullptr) != 0) return trace_error(errno, "interrupt");
  for (;;) {
    ASSIGN_OR_RETURN(const int status, wait_for_stop(timeout));
    if (get_event(status) == PTRACE_EVENT_STOP) return absl::OkStatus();
    // Another stop came first: a signal is delivered, and a system call goes on.
    const int signal = WSTOPSIG(status) == kSystemCallStop ? 0 : WSTOPSIG(status);
    if (trace(PTRACE_CONT, tid_, 0, as_data(static_cast<unsigned long>(signal))) != 0) {
      return trace_error(errno, "go on to the interruption");
    }
  }
}

Status HeldThread::stop() {
  RETURN_IF_ERROR(interrupt(kStopTimeout));
  where_ = Where::kStopped;
  RETURN_IF_ERROR(read_registers(state_.registers));
  const user_regs_struct& registers = state_.registers;
  if (registers.cs != kUserCode || !is_restartable_wait(registers.orig_rax) ||
      !is_kernel_restart(registers.rax)) {
    return absl::FailedPreconditionError("the thread had gone on from its wait");
  }
  return absl::OkStatus();
}

Status HeldThread::resume() {
  if (trace(PTRACE_CONT, tid_, 0, nullptr) != 0) return trace_error(errno, "resume");
  where_ = Where::kRunning;
  note_held();
  return absl::OkStatus();
}

void HeldThread::note_held() {
  const Duration took = steady_clock::now() - stopped_at_;
  held_ += took;
  longest_ = std::max(longest_, took);
}

Status HeldThread::read_registers(user_regs_struct& registers) const {
  iovec part{&registers, sizeof registers};
  if (trace(PTRACE_GETREGSET, tid_, NT_PRSTATUS, &part) == 0 && part.iov_len == sizeof registers) {
    return absl::OkStatus();
  }
  return trace_error(errno, "read its registers");
}

Status HeldThread::write_registers(const user_regs_struct& registers) const {
  user_regs_struct copy = registers;
  iovec part{&copy, sizeof copy};
  if (trace(PTRACE_SETREGSET, tid_, NT_PRSTATUS, &part) == 0) return absl::OkStatus();
  return trace_error(errno, "write its registers");
}

Status write_memory(pid_t pid, uint64_t address, std::span<const std::byte> bytes) {
  const iovec here{const_cast<std::byte*>(bytes.data()), bytes.size()};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process
  const iovec there{reinterpret_cast<void*>(address), bytes.size()};
  const ssize_t count = process_vm_writev(pid, &here, 1, &there, 1, 0);
  if (count == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return trace_error(count < 0 ? errno : EFAULT, "process_vm_writev");
}

Status HeldThread::write(uint64_t address, std::span<const std::byte> bytes) const {
  return write_memory(tid_, address, bytes);
}

Status HeldThread::read(uint64_t address, std::span<std::byte> bytes) const {
  const iovec here{bytes.data(), bytes.size()};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process
  const iovec there{reinterpret_cast<void*>(address), bytes.size()};
  const ssize_t count = process_vm_readv(tid_, &here, 1, &there, 1, 0);
  if (count == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return trace_error(count < 0 ? errno : EFAULT, "process_vm_readv");
}

Status HeldThread::begin_calls(uint64_t restorer, size_t scratch_bytes) {
  state_.xstate.resize(kMaxXstateBytes);
  iovec part{state_.xstate.data(), state_.xstate.size()};
  if (trace(PTRACE_GETREGSET, tid_, NT_X86_XSTATE, &part) != 0) {
    return trace_error(errno, "read its extended registers");
  }
  state_.xstate.resize(part.iov_len);
  if (trace(PTRACE_GETSIGMASK, tid_, sizeof(uint64_t), &state_.blocked_signals) != 0) {
    return trace_error(errno, "read its signal mask");
  }
  constexpr uint64_t kLine = 64;
  scratch_address_ = (state_.registers.rsp - kRedZoneBytes - scratch_bytes) / kLine * kLine;
  const std::optional<SignalFrame> frame = make_signal_frame(state_, restorer, scratch_address_);
  if (!frame) {
    return absl::UnimplementedError("the thread's extended registers are of an unknown form");
  }
  frame_address_ = frame->address;
  restorer_ = restorer;
  return write(frame->bytes_address, frame->bytes);
}

Result<int64_t> HeldThread::call(uint64_t function, std::span<const uint64_t> arguments,
                                 std::span<const uint64_t> system_calls) {
  std::array<uint64_t, 6> words{};
  std::ranges::copy(arguments, words.begin());
  user_regs_struct registers = state_.registers;
  registers.rip = function;
  registers.rsp = frame_address_;
  registers.rdi = words[0];
  registers.rsi = words[1];
  registers.rdx = words[2];
  registers.rcx = words[3];
  registers.r8 = words[4];
  registers.r9 = words[5];
  registers.rax = 0;
  registers.rbp = 0;
  registers.orig_rax = ~0ull;  // no system call is to begin anew, or to be made
  registers.eflags &= ~(kDirectionFlag | kTrapFlag);
  RETURN_IF_ERROR(write_registers(registers));
  where_ = Where::kCalling;
  // Only now that the frame, which gives the mask back, will be returned to.
  uint64_t blocked = kBlocked;
  if (trace(PTRACE_SETSIGMASK, tid_, sizeof blocked, &blocked) != 0) {
    return trace_error(errno, "block its signals");
  }
  return wait_for_return(system_calls);
}

Result<int64_t> HeldThread::wait_for_return(std::span<const uint64_t> system_calls) {
  const auto deadline = steady_clock::now() + kCallTimeout;
  int signal = 0;
  uint64_t number = 0;
  std::optional<int64_t> result;
  while (steady_clock::now() < deadline) {
    RETURN_IF_ERROR(run_until_stop(signal));
    signal = 0;
    ASSIGN_OR_RETURN(const int status, wait_for_stop(kCallStopTimeout));
    if (get_event(status) == PTRACE_EVENT_STOP) continue;  // the process is being stopped: soon
    const int stop = WSTOPSIG(status);
    if (stop != kSystemCallStop) {
      siginfo_t info{};
      (void)trace(PTRACE_GETSIGINFO, tid_, 0, &info);
      // Caused by an instruction of the call, and not sent by anybody.
      if (info.si_code > 0 && info.si_code != SI_KERNEL) {
        where_ = Where::kReturned;
        return absl::InternalError("a call in the process failed with signal " +
                                   std::to_string(stop));
      }
      signal = stop;
      continue;
    }
    __ptrace_syscall_info info{};
    if (trace(PTRACE_GET_SYSCALL_INFO, tid_, sizeof info, &info) <= 0) {
      return trace_error(errno, "ask for its system call");
    }
    if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
      if (std::ranges::find(system_calls, number) != system_calls.end()) result = info.exit.rval;
      continue;
    }
    number = info.entry.nr;
    if (number != __NR_rt_sigreturn || info.stack_pointer != frame_address_ + sizeof(uint64_t)) {
      continue;
    }
    RETURN_IF_ERROR(leave_return(deadline));
    if (result) return *result;
    return absl::InternalError("a call in the process made no system call");
  }
  return absl::DeadlineExceededError("a call in the process took too long; it ends by itself");
}

// At the entry of rt_sigreturn: makes that another system call, one that does nothing, whose end
// goes to the restorer again. Not none at all: a seccomp filter would judge the number -1, and
// overwrite rax.
Status HeldThread::leave_return(std::chrono::steady_clock::time_point deadline) {
  user_regs_struct registers{};
  RETURN_IF_ERROR(read_registers(registers));
  registers.orig_rax = __NR_getpid;
  registers.rip = restorer_;
  registers.rsp = frame_address_ + sizeof(uint64_t);
  RETURN_IF_ERROR(write_registers(registers));
  while (steady_clock::now() < deadline) {
    RETURN_IF_ERROR(run_until_stop(0));
    ASSIGN_OR_RETURN(const int status, wait_for_stop(kCallStopTimeout));
    if (get_event(status) == PTRACE_EVENT_STOP || WSTOPSIG(status) != kSystemCallStop) continue;
    where_ = Where::kReturned;
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError("a call in the process took too long; it ends by itself");
}

Status HeldThread::run_until_stop(int signal) {
  if (trace(PTRACE_SYSCALL, tid_, 0, as_data(static_cast<unsigned long>(signal))) == 0) {
    return absl::OkStatus();
  }
  return trace_error(errno, "run a call");
}

Status HeldThread::restore_rest() const {
  std::vector<std::byte> xstate = state_.xstate;
  iovec part{xstate.data(), xstate.size()};
  if (trace(PTRACE_SETREGSET, tid_, NT_X86_XSTATE, &part) != 0) {
    return trace_error(errno, "restore its extended registers");
  }
  uint64_t blocked = state_.blocked_signals;
  if (trace(PTRACE_SETSIGMASK, tid_, sizeof blocked, &blocked) != 0) {
    return trace_error(errno, "restore its signal mask");
  }
  return absl::OkStatus();
}

Status HeldThread::let_go() {
  if (where_ == Where::kReturned) {
    // If we end before the registers are written, rt_sigreturn gives back everything; if after
    // that, they are as it would leave them. Then stopped once more, where the kernel lets the
    // system call go on as after any stop.
    RETURN_IF_ERROR(restore_rest());
    RETURN_IF_ERROR(write_registers(make_restart_registers(state_.registers)));
    if (trace(PTRACE_INTERRUPT, tid_, 0, nullptr) != 0 ||
        trace(PTRACE_CONT, tid_, 0, nullptr) != 0) {
      return trace_error(errno, "go back to its wait");
    }
    ASSIGN_OR_RETURN(const int status, wait_for_stop(kCallTimeout));
    if (get_event(status) != PTRACE_EVENT_STOP) {
      // A signal came first: its handler runs, and the wait begins anew.
      detach(WSTOPSIG(status));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(write_registers(state_.registers));
  }
  detach(0);
  return absl::OkStatus();
}

void HeldThread::detach(int signal) {
  (void)trace(PTRACE_DETACH, tid_, 0, as_data(static_cast<unsigned long>(signal)));
  if (where_ != Where::kRunning) note_held();
  where_ = Where::kNone;
}

}  // namespace gpuperf
