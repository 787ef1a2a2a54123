#include "injector/note_points.h"

#include <cstddef>

// A function that is only a nop, with the note that describes it and its semaphore. The note has
// the format of <sys/sdt.h> (systemtap's wiki, "UserSpaceProbeImplementation"), which would put a
// 1-byte nop there: no kernel replaces that with a call. The semaphores are writable data in the
// file: the kernel finds them by their file offset. 16 bytes of alignment keep the nop within one
// page, as the kernel requires.
#define SEMAPHORE(name)              \
  __attribute__((section(".probes"), \
                 visibility("hidden"))) volatile uint16_t gpuperf_injector_##name##_semaphore = 0;
#define NOTE_POINT(name, type, semaphore)                                                       \
  __attribute__((naked, noinline, aligned(16), visibility("hidden"))) void gpuperf_note_##name( \
      const type*) {                                                                            \
    __asm__(                                                                                    \
        "990: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n" /* nopl 0(%rax,%rax) */                     \
        "ret\n"                                                                                 \
        ".pushsection .note.stapsdt,\"\",\"note\"\n"                                            \
        ".balign 4\n"                                                                           \
        ".4byte 992f-991f, 994f-993f, 3\n"                                                      \
        "991: .asciz \"stapsdt\"\n"                                                             \
        "992: .balign 4\n"                                                                      \
        "993: .8byte 990b, 0, " #semaphore                                                      \
        "\n"                                                                                    \
        ".asciz \"" GPUPERF_NOTE_PROVIDER                                                       \
        "\"\n"                                                                                  \
        ".asciz \"" #name                                                                       \
        "\"\n"                                                                                  \
        ".asciz \"8@%rdi\"\n"                                                                   \
        "994: .balign 4\n"                                                                      \
        ".popsection\n");                                                                       \
  }

namespace gpuperf {
static_assert(offsetof(HookFlags, count_semaphore) == 0);
static_assert(offsetof(HookFlags, launches_semaphore) == 8);
static_assert(offsetof(HookFlags, each_semaphore) == 10);
static_assert(offsetof(HookFlags, clock) + sizeof(injector::CycleClock::Scale) <= 64);
extern "C" {
__attribute__((section(".probes"), visibility("hidden"))) HookFlags gpuperf_hook_flags = {};
NOTE_POINT(count, void, gpuperf_hook_flags)
SEMAPHORE(calls)
NOTE_POINT(calls, gpuperf_noted_calls, gpuperf_injector_calls_semaphore)
SEMAPHORE(slow)
NOTE_POINT(slow, gpuperf_noted_call, gpuperf_injector_slow_semaphore)
SEMAPHORE(launch)
NOTE_POINT(launch, gpuperf_noted_call, gpuperf_injector_launch_semaphore)
SEMAPHORE(thread)
NOTE_POINT(thread, gpuperf_noted_thread, gpuperf_injector_thread_semaphore)
NOTE_POINT(launches, gpuperf_noted_launches, gpuperf_hook_flags + 8)
NOTE_POINT(each, void, gpuperf_hook_flags + 10)
}
}  // namespace gpuperf
