#pragma once

#include <sys/user.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gpuperf {

// What a thread that is stopped within a system call had, and gets back.
struct StoppedThread {
  user_regs_struct registers{};
  std::vector<std::byte> xstate;  // NT_X86_XSTATE: the whole extended state, as ptrace gives it
  uint64_t blocked_signals = 0;
};

// A frame as the kernel writes it below a thread's stack when it delivers a signal, made by us: a
// function that is entered with its stack pointer at `address` returns to `restorer` (glibc's
// __restore_rt, which calls rt_sigreturn), and the kernel then gives the thread back everything in
// `state`. So a thread that nobody traces any more comes back from the function by itself.
//
//   | extended state, 64-byte aligned | ... | restorer | struct ucontext | siginfo (zero) |
//                                           ^ address: 8 below a multiple of 16, as at any entry
//
// Its system call begins anew, as after a signal handler with SA_RESTART; one that goes on by a
// restart block (a wait with a relative timeout) fails with EINTR, as after any handler.
struct SignalFrame {
  uint64_t address = 0;
  uint64_t bytes_address = 0;    // of the lowest byte
  std::vector<std::byte> bytes;  // up to the end of the frame
};

// Below `top`. Nothing: the extended state is none that rt_sigreturn would take back.
std::optional<SignalFrame> make_signal_frame(const StoppedThread& state, uint64_t restorer,
                                             uint64_t top);

// As far as `xstate` is in use or enabled for the thread: what rt_sigreturn takes back. A thread
// that has not asked for AMX must not be given it. 0 = not known.
size_t find_frame_xstate_bytes(std::span<const std::byte> xstate);

// The registers that the frame gives back: they begin the system call anew (above).
user_regs_struct make_restart_registers(const user_regs_struct& stopped);

}  // namespace gpuperf
