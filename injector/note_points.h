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

namespace gpuperf {

extern "C" {
void gpuperf_note_count(const void* nothing);
void gpuperf_note_calls(const gpuperf_noted_calls* calls);
void gpuperf_note_slow(const gpuperf_noted_call* call);
void gpuperf_note_launch(const gpuperf_noted_call* call);
void gpuperf_note_thread(const gpuperf_noted_thread* thread);
void gpuperf_note_launches(const gpuperf_noted_launches* launches);
void gpuperf_note_each(const void* nothing);

// What a launch hook checks before anything else, the first two with one comparison.
struct alignas(uint32_t) HookFlags {
  uint16_t count_semaphore;  // written by the kernel only
  uint16_t attention;        // launching threads are asked for something: see launch_hooks.h
  std::atomic<uint16_t> open_captures;  // see graph_hooks.h
};
extern HookFlags gpuperf_hook_flags;
// Written by the kernel only.
extern volatile uint16_t gpuperf_injector_calls_semaphore;
extern volatile uint16_t gpuperf_injector_slow_semaphore;
extern volatile uint16_t gpuperf_injector_launch_semaphore;
extern volatile uint16_t gpuperf_injector_thread_semaphore;
extern volatile uint16_t gpuperf_injector_launches_semaphore;
extern volatile uint16_t gpuperf_injector_each_semaphore;
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
// Whether launches are to be reported, and if so, whether each at once. If not each, few need a
// stack, and the others may be reported together.
inline bool launches_wanted() { return gpuperf_injector_launches_semaphore != 0; }
inline bool each_launch_wanted() { return gpuperf_injector_each_semaphore != 0; }

}  // namespace gpuperf
