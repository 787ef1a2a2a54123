#pragma once

// The functions through which the launch hooks hand their counts to gpuperfd: see bpf/hook_notes.h.
//
// Thread: any. Each function starts with a 5-byte nop and does nothing by itself. The daemon keeps
// a uprobe on the nop, which Linux 6.18 and later turn into a call. While that uprobe is there, the
// kernel raises the note's semaphore in every process that maps this file. What the argument points
// to is read before the function returns. Nothing here allocates, locks or sets errno. The nop is
// at a function's entry because the call writes below the stack pointer, where a function in
// progress may keep values (the red zone).

#include <atomic>
#include <cstdint>

#include "bpf/hook_notes.h"
#include "injector/cycle_clock.h"

namespace gpuperf {

extern "C" {
void gpuperf_note_count(const void* nothing);
void gpuperf_note_calls(const gpuperf_noted_calls* calls);
void gpuperf_note_slow(const gpuperf_noted_call* call);
void gpuperf_note_launch(const gpuperf_noted_call* call);
void gpuperf_note_thread(const gpuperf_noted_thread* thread);
void gpuperf_note_launches(const gpuperf_noted_launches* launches);
void gpuperf_note_each(const void* nothing);

// Why calls pass through gpuperf_count (hook_code.h) even if hooks do not count.
enum Attention : uint16_t {
  kAsked = 1,     // launching threads are asked for something: see launch_hooks.h
  kWatched = 2,   // calls are followed from their beginning to their end
  kProgress = 4,  // calls are counted as such; says nothing to those that hooks count otherwise
};

// Why counted calls take the long way.
enum SpecialCall : uint16_t {
  kUnawaited = 1,   // the injector's thread does not know yet that there are counts
  kNotCounted = 2,  // a forked child: hooks count no more
  kLogged = 4,      // calls are logged (call_log.h)
  kHeld = 8,        // see launch_gate.h
  kNoSlot = 16,     // where a thread's counts are must be asked for
  kTimed = 32,      // a call soon times its hook, and takes this back
};

// What every launch reads, in one cache line: a launch finds few in the caches. The semaphores are
// written by the kernel only.
struct alignas(64) HookFlags {
  // Compared first, the first two at once, then all but the first.
  uint16_t count_semaphore;
  std::atomic<uint16_t> attention;      // bits of enum Attention
  std::atomic<uint16_t> open_captures;  // see graph_hooks.h
  // Bits of enum SpecialCall: while one is set, calls take the long way.
  std::atomic<uint16_t> special = kUnawaited;
  volatile uint16_t launches_semaphore;
  volatile uint16_t each_semaphore;
  uint32_t pad;
  uintptr_t thread_slot;  // see ThreadTable::read_slot; 0 = not found
  uint64_t pad_to_clock;
  injector::CycleClock clock;
};
extern HookFlags gpuperf_hook_flags;
// Written by the kernel only.
extern volatile uint16_t gpuperf_injector_calls_semaphore;
extern volatile uint16_t gpuperf_injector_slow_semaphore;
extern volatile uint16_t gpuperf_injector_launch_semaphore;
extern volatile uint16_t gpuperf_injector_thread_semaphore;
}

inline void note_calls(const gpuperf_noted_calls& calls) { gpuperf_note_calls(&calls); }
inline void note_slow(const gpuperf_noted_call& call) { gpuperf_note_slow(&call); }
inline void note_launch(const gpuperf_noted_call& call) { gpuperf_note_launch(&call); }
inline void note_thread(const gpuperf_noted_thread& thread) { gpuperf_note_thread(&thread); }
inline void note_launches(const gpuperf_noted_launches& kept) { gpuperf_note_launches(&kept); }

// Whether hooks count calls: a hooked call then bypasses the breakpoint.
inline bool hooks_count() {
  return __atomic_load_n(&gpuperf_hook_flags.count_semaphore, __ATOMIC_RELAXED) != 0;
}
// Whether a call takes the long way: hooks do not count, it is asked for attention, a capture is
// open, or any SpecialCall.
inline bool is_any_special() {
  constexpr uint64_t kLooked = ~(uint64_t{kProgress} << 16);
  uint64_t words = 0;
  __asm__("mov %1, %0" : "=r"(words) : "m"(gpuperf_hook_flags));
  return (words & kLooked) - 1 >= UINT16_MAX;
}
// Of `attention` and `special`. Sets nothing that is as it is to be: launches read that line.
inline bool has_flag(const std::atomic<uint16_t>& flags, uint16_t flag) {
  return (flags.load(std::memory_order_relaxed) & flag) != 0;
}
inline void set_flag(std::atomic<uint16_t>& flags, uint16_t flag, bool is_set) {
  if (has_flag(flags, flag) == is_set) return;
  if (is_set) {
    flags.fetch_or(flag);
  } else {
    flags.fetch_and(static_cast<uint16_t>(~flag));
  }
}
inline bool is_special(SpecialCall reason) { return has_flag(gpuperf_hook_flags.special, reason); }
inline void set_special(SpecialCall reason, bool is_set) {
  set_flag(gpuperf_hook_flags.special, reason, is_set);
}
// Whether launches are to be reported, and if so, whether each at once. If not each, few need a
// stack, and the others may be reported together.
inline bool launches_wanted() { return gpuperf_hook_flags.launches_semaphore != 0; }
inline bool each_launch_wanted() { return gpuperf_hook_flags.each_semaphore != 0; }

}  // namespace gpuperf
