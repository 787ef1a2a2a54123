#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "daemon/attach/signal_frame.h"
#include "daemon/base/result.h"

namespace gpuperf {

// One thread of another process, stopped within a system call that can begin anew, made to call
// functions of its own process, and let go as if nothing had been.
//
// Whatever becomes of this process, the thread comes to no harm: while nothing was called it only
// goes on waiting; from the first call on its stack holds a signal frame (signal_frame.h) that
// every call returns to. Thread: the one that seizes is the thread's tracer for the kernel, and
// must do all the rest. Every wait has a limit. Nothing else of the process is stopped.
class HeldThread {
 public:
  using Duration = std::chrono::steady_clock::duration;
  // A thread that waits is stopped within some 20 us; one that has begun to run within a tick.
  static constexpr std::chrono::milliseconds kStopTimeout{20};
  // Of a call without any progress: it waits for a lock. And of a whole one, on a host where the
  // thread hardly gets a CPU.
  static constexpr std::chrono::milliseconds kCallStopTimeout{50};
  static constexpr std::chrono::milliseconds kCallTimeout{250};

  explicit HeldThread(pid_t tid) : tid_(tid) {}
  // Lets go. Where it cannot (a call that takes too long), the end of this process does.
  ~HeldThread();
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;

  // Becomes its tracer. PermissionDenied: not allowed; NotFound: it has ended.
  Status seize();
  // Stops it. FailedPrecondition: it was not within a system call that can begin anew.
  Status stop();
  // What it has now; it is stopped, and nothing was called.
  const StoppedThread& state() const { return state_; }
  // Lets it run on, still its tracer.
  Status resume();

  // From here on calls can be made. `scratch_bytes` of its stack are for arguments.
  Status begin_calls(uint64_t restorer, size_t scratch_bytes);
  uint64_t scratch_address() const { return scratch_address_; }
  Status write(uint64_t address, std::span<const std::byte> bytes) const;
  Status read(uint64_t address, std::span<std::byte> bytes) const;
  // Has it call the function with up to six words. Returns what the last of `system_calls` that the
  // function made returned: what the function itself returns is gone once it has returned to the
  // frame. Internal: it made none, or failed with a signal.
  Result<int64_t> call(uint64_t function, std::span<const uint64_t> arguments,
                       std::span<const uint64_t> system_calls);
  // Gives back all it had and lets go: its system call goes on.
  Status let_go();

  // For how long it did not run because of us.
  Duration held() const { return held_; }
  Duration longest_hold() const { return longest_; }

 private:
  enum class Where {
    kNone,      // not traced
    kRunning,   // traced, on its own
    kStopped,   // in its system call, as it was
    kReturned,  // back from a call, about to run the restorer
    kCalling,   // in one of our calls
  };

  // The next stop; DeadlineExceeded, NotFound when it has ended.
  Result<int> wait_for_stop(std::chrono::milliseconds timeout);
  Result<int64_t> wait_for_return(std::span<const uint64_t> system_calls);
  Status leave_return(std::chrono::steady_clock::time_point deadline);
  Status interrupt(std::chrono::milliseconds timeout);
  Status read_registers(user_regs_struct& registers) const;
  Status write_registers(const user_regs_struct& registers) const;
  Status restore_rest() const;
  Status run_until_stop(int signal);
  void detach(int signal);
  void note_held();

  const pid_t tid_;
  Where where_ = Where::kNone;
  StoppedThread state_;
  uint64_t frame_address_ = 0;
  uint64_t restorer_ = 0;
  uint64_t scratch_address_ = 0;
  std::chrono::steady_clock::time_point stopped_at_{};
  Duration held_{0};
  Duration longest_{0};
};

// In another process; needs the right to ptrace it.
Status write_memory(pid_t pid, uint64_t address, std::span<const std::byte> bytes);

// System calls that a thread can wait in and that can be begun anew without anybody noticing.
bool is_restartable_wait(uint64_t system_call);

}  // namespace gpuperf
