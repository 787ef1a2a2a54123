#pragma once

// Where the time of a call went.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/records.h"

namespace gpuperf {

// What a thread waited for; the rows of GPUPERF_WAIT_*.
enum class WaitKind { kOther, kFutex, kIo, kPoll, kGpu, kSleep, kFault };
inline constexpr size_t kWaitKinds = GPUPERF_WAIT_KINDS;
// "other", "futex", "io", "poll", "gpu", "sleep", "page_fault".
std::string_view get_wait_kind_name(WaitKind kind);

// The thread that ended a wait.
struct Waker {
  uint32_t tid = 0;  // 0 = none: a timer, an interrupt, or not seen
  uint32_t pid = 0;
  uint64_t process_start_boot_ns = 0;
  bool is_kernel = false;  // a thread of the kernel
  std::string comm;
  uint64_t stack_id = 0;  // of a RawStack, in user space; 0 = none
  bool operator==(const Waker&) const = default;
};

// One wait of a call.
struct Wait {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  WaitKind kind = WaitKind::kOther;
  int32_t syscall = -1;    // number; -1 = none: a page fault
  uint32_t file_mode = 0;  // st_mode of the file waited on; 0 = none
  std::string file_name;   // last part of its path; empty for pipes
  Waker waker;
  std::vector<uint64_t> kernel_stack;  // of the waiting thread, innermost first
  bool operator==(const Wait&) const = default;
};

// As the kernel counted it: the time off the CPU, and samples of the time on it.
struct TimeSplit {
  uint64_t runnable_ns = 0;
  uint64_t throttled_ns = 0;
  std::array<uint64_t, kWaitKinds> waits_ns{};
  std::array<uint32_t, GPUPERF_TICK_KINDS> ticks{};  // user space, system call, page fault
  uint32_t preemptions = 0;
  uint32_t migrations = 0;
  uint32_t minor_faults = 0;
  uint32_t major_faults = 0;
  bool operator==(const TimeSplit&) const = default;
};

// The parts of a duration; they add up to it.
struct TimeParts {
  uint64_t on_cpu_user_ns = 0;
  uint64_t on_cpu_kernel_ns = 0;  // in system calls
  uint64_t on_cpu_fault_ns = 0;   // in page faults
  uint64_t runnable_ns = 0;
  uint64_t throttled_ns = 0;
  std::array<uint64_t, kWaitKinds> blocked_ns{};
  bool operator==(const TimeParts&) const = default;
};
// The time on the CPU is what is left, shared out by the samples; without any it counts as user
// space. Time off the CPU beyond the duration (the hooks and the probe read the clock at slightly
// different moments) is taken off the largest part.
TimeParts make_time_parts(const TimeSplit& split, uint64_t duration_ns);
uint64_t get_on_cpu_ns(const TimeParts& parts);
uint64_t get_blocked_ns(const TimeParts& parts);
// The kind of wait with the most time; empty = never blocked.
std::optional<WaitKind> find_main_wait(const TimeParts& parts);

// "read", "futex", "ioctl"; "syscall 999" where the number has no name here; empty for -1.
std::string get_syscall_name(int32_t number);
// "pipe", "socket", "file", "directory", "device"; empty for 0 and what has no type (epoll,
// eventfd).
std::string_view get_file_kind_name(uint32_t mode);

// Probed calls of one function made directly inside a call.
struct ChildCalls {
  uint32_t function_id = 0;  // GPUPERF_OTHER_CHILDREN: all further functions together
  uint32_t calls = 0;
  uint64_t total_ns = 0;
  bool operator==(const ChildCalls&) const = default;
};

// What a thread was found doing.
enum class ThreadState { kRunning, kRunnable, kBlocked };
// "running", "runnable", "blocked".
std::string_view get_thread_state_name(ThreadState state);

}  // namespace gpuperf
