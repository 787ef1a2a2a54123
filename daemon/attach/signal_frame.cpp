#include "daemon/attach/signal_frame.h"

#include <cpuid.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gpuperf {
namespace {

// Linux arch/x86/include/uapi/asm/sigcontext.h, ucontext.h, asm/sigframe.h. Not from the headers:
// the C library's structs of the same names differ.
struct KernelRegisters {
  uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
  uint64_t rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip;
  uint64_t eflags;
  uint16_t cs, gs, fs, ss;
  uint64_t error, trap, old_mask, fault_address;
  uint64_t xstate_address;
  uint64_t reserved[8];
};
static_assert(sizeof(KernelRegisters) == 256);
// struct _fpx_sw_bytes, in the legacy area.
struct XstateNotes {
  uint32_t magic;
  uint32_t all_bytes;
  uint64_t features;
  uint32_t bytes;
  uint32_t pad[7];
};
static_assert(sizeof(XstateNotes) == 48);
constexpr uint32_t kMagic1 = 0x4650'5853, kMagic2 = 0x4650'5845;
constexpr uint64_t kHasXstate = 1;        // UC_FP_XSTATE
constexpr uint64_t kHasStackSegment = 2;  // UC_SIGCONTEXT_SS
constexpr uint64_t kStrictSegment = 4;    // UC_STRICT_RESTORE_SS
struct KernelContext {
  uint64_t flags;
  uint64_t link;
  // The alternate signal stack. These flags are no valid ones: rt_sigreturn then leaves the
  // thread's as it is, and goes on.
  uint64_t stack_address;
  uint32_t stack_flags;
  uint32_t pad;
  uint64_t stack_bytes;
  KernelRegisters registers;
  uint64_t signal_mask;
};
static_assert(sizeof(KernelContext) == 304);
constexpr uint32_t kNoSuchStackFlags = 4;
constexpr size_t kSiginfoBytes = 128;

// The legacy area, the header whose first word says what is in use, and the area for the kernel's
// notes in the former (struct _fpx_sw_bytes).
constexpr size_t kLegacyBytes = 512;
constexpr size_t kHeaderBytes = 64;
constexpr size_t kNotesAt = 464;
constexpr uint64_t kAmx = (uint64_t{1} << 17) | (uint64_t{1} << 18);
// x87 and SSE have no leaf; supervisor state is none of a signal frame.
constexpr unsigned kFirstExtended = 2, kFeatures = 63;
constexpr unsigned kXstateLeaf = 0xd;

uint64_t read_word(std::span<const std::byte> bytes, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

// Of the enabled features those that belong into a frame.
uint64_t find_frame_features(std::span<const std::byte> xstate) {
  const uint64_t in_use = read_word(xstate, kLegacyBytes);
  unsigned low = 0, high = 0, size = 0, unused = 0;
  if (__get_cpuid_count(kXstateLeaf, 0, &low, &size, &unused, &high) == 0) return 0;
  const uint64_t enabled = read_word(xstate, kNotesAt) & ((uint64_t{high} << 32) | low);
  return (enabled & ~kAmx) | (in_use & kAmx) | 3;
}

}  // namespace

size_t find_frame_xstate_bytes(std::span<const std::byte> xstate) {
  if (xstate.size() < kLegacyBytes + kHeaderBytes) return 0;
  const uint64_t features = find_frame_features(xstate);
  size_t bytes = kLegacyBytes + kHeaderBytes;
  for (unsigned feature = kFirstExtended; feature < kFeatures; ++feature) {
    if ((features >> feature & 1) == 0) continue;
    unsigned size = 0, offset = 0, flags = 0, unused = 0;
    if (__get_cpuid_count(kXstateLeaf, feature, &size, &offset, &flags, &unused) == 0) return 0;
    constexpr unsigned kSupervisor = 1;
    if ((flags & kSupervisor) != 0) continue;
    bytes = std::max(bytes, size_t{offset} + size);
  }
  return bytes <= xstate.size() ? bytes : 0;
}

user_regs_struct make_restart_registers(const user_regs_struct& stopped) {
  // The kernel's own, which user space never sees.
  constexpr long kRestartSys = 512, kRestartNoIntr = 513, kRestartNoHand = 514, kRestartBlock = 516;
  constexpr uint64_t kInstructionBytes = 2;  // syscall
  user_regs_struct registers = stopped;
  registers.orig_rax = ~0ull;
  const auto result = static_cast<long>(stopped.rax);
  if (result == -kRestartSys || result == -kRestartNoIntr || result == -kRestartNoHand) {
    registers.rax = stopped.orig_rax;
    registers.rip -= kInstructionBytes;
  } else if (result == -kRestartBlock) {
    registers.rax = static_cast<unsigned long long>(-EINTR);
  }
  return registers;
}

std::optional<SignalFrame> make_signal_frame(const StoppedThread& state, uint64_t restorer,
                                             uint64_t top) {
  const size_t xstate_bytes = find_frame_xstate_bytes(state.xstate);
  if (xstate_bytes == 0) return std::nullopt;
  constexpr uint64_t kXstateAlign = 64, kStackAlign = 16;
  const size_t all_xstate_bytes = xstate_bytes + sizeof(uint32_t);  // with FP_XSTATE_MAGIC2
  constexpr size_t kFrameBytes = sizeof(uint64_t) + sizeof(KernelContext) + kSiginfoBytes;
  // The extended state lies above the frame, as the kernel puts it.
  const uint64_t xstate_at = (top - all_xstate_bytes) / kXstateAlign * kXstateAlign;
  SignalFrame frame;
  frame.address = (xstate_at - kFrameBytes) / kStackAlign * kStackAlign - sizeof(uint64_t);
  frame.bytes_address = frame.address;
  frame.bytes.resize(xstate_at + all_xstate_bytes - frame.address);

  const user_regs_struct from = make_restart_registers(state.registers);
  KernelContext context{};
  context.flags = kHasXstate | kHasStackSegment | kStrictSegment;
  context.stack_flags = kNoSuchStackFlags;
  KernelRegisters& to = context.registers;
  to.r8 = from.r8;
  to.r9 = from.r9;
  to.r10 = from.r10;
  to.r11 = from.r11;
  to.r12 = from.r12;
  to.r13 = from.r13;
  to.r14 = from.r14;
  to.r15 = from.r15;
  to.rdi = from.rdi;
  to.rsi = from.rsi;
  to.rbp = from.rbp;
  to.rbx = from.rbx;
  to.rdx = from.rdx;
  to.rax = from.rax;
  to.rcx = from.rcx;
  to.rsp = from.rsp;
  to.rip = from.rip;
  to.eflags = from.eflags;
  to.cs = static_cast<uint16_t>(from.cs);
  to.ss = static_cast<uint16_t>(from.ss);
  to.xstate_address = xstate_at;
  context.signal_mask = state.blocked_signals;

  const XstateNotes notes{.magic = kMagic1,
                          .all_bytes = static_cast<uint32_t>(all_xstate_bytes),
                          .features = find_frame_features(state.xstate),
                          .bytes = static_cast<uint32_t>(xstate_bytes)};

  std::byte* const at = frame.bytes.data();
  std::byte* const xstate = at + (xstate_at - frame.address);
  std::memcpy(at, &restorer, sizeof restorer);
  std::memcpy(at + sizeof restorer, &context, sizeof context);
  std::memcpy(xstate, state.xstate.data(), xstate_bytes);
  std::memcpy(xstate + kNotesAt, &notes, sizeof notes);
  std::memcpy(xstate + xstate_bytes, &kMagic2, sizeof kMagic2);
  return frame;
}

}  // namespace gpuperf
