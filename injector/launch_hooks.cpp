#include "injector/launch_hooks.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <type_traits>

#include "injector/cycle_clock.h"
#include "injector/graph_hooks.h"
#include "injector/known_stacks.h"
#include "injector/launch_counts.h"
#include "injector/note_points.h"
#include "injector/pointer_patch.h"

// In the driver's place: two instructions and the jump to it while nothing is counted and no
// attention asked for, on the caller's stack as it is.
//
// gpuperf_enter_... enters the driver's function behind its first instruction, push %rbp, which is
// done here: the daemon's breakpoint sits on it (docs/decisions/0005). r11 belongs to nobody
// between a caller and what it calls. The unwind information is what the function itself has at
// that place.
#define GPUPERF_ENTRY_CODE(name)                                                       \
  extern "C" {                                                                         \
  __attribute__((visibility("hidden"))) gpuperf::injector::Word gpuperf_real_##name;   \
  __attribute__((visibility("hidden"))) gpuperf::injector::Word gpuperf_count_##name;  \
  __attribute__((visibility("hidden"))) gpuperf::injector::Word gpuperf_past_##name;   \
  __attribute__((naked, noinline, visibility("hidden"))) void gpuperf_hook_##name() {  \
    __asm__(                                                                           \
        "cmpl $0, gpuperf_hook_flags(%rip)\n"                                          \
        "jne 1f\n"                                                                     \
        "jmp *gpuperf_real_" #name                                                     \
        "(%rip)\n"                                                                     \
        "1: jmp *gpuperf_count_" #name "(%rip)\n");                                    \
  }                                                                                    \
  __attribute__((naked, noinline, visibility("hidden"))) void gpuperf_enter_##name() { \
    __asm__("mov gpuperf_past_" #name                                                  \
            "(%rip), %r11\n"                                                           \
            "push %rbp\n"                                                              \
            ".cfi_adjust_cfa_offset 8\n"                                               \
            ".cfi_rel_offset %rbp, 0\n"                                                \
            "notrack jmp *%r11\n");                                                    \
  }                                                                                    \
  }
GPUPERF_HOOK_ENTRIES(GPUPERF_ENTRY_CODE)
#undef GPUPERF_ENTRY_CODE

namespace gpuperf::injector {
namespace {

// What the driver's functions begin with (all 249 of driver 580.95 that were looked at); behind
// endbr64 where a driver is built with it.
constexpr uint8_t kPushRbp = 0x55;
constexpr uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

struct Entry {
  Word real = 0;  // 0 = this driver has none, or it begins otherwise
  // Its first 8 bytes, less the one that the daemon's breakpoint replaces.
  uint64_t first_bytes = 0;
  uint64_t first_bytes_mask = 0;
};

Entry g_entries[GPUPERF_HOOK_COUNT];
bool g_is_installed = false;             // set before the injector's thread is there
std::atomic<bool> g_is_off = false;      // a forked child
std::atomic<bool> g_is_awaited = false;  // the injector's thread knows that there are counts
void (*g_wake)() = nullptr;
CycleClock g_clock;
ThreadTable g_threads;
CallNotes g_notes(g_threads);

bool is_unchanged(const Entry& entry) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, reinterpret_cast<const void*>(entry.real), sizeof(bytes));
  return (bytes & entry.first_bytes_mask) == entry.first_bytes;
}

template <typename T>
Word to_word(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<Word>(value);
  } else {
    return static_cast<Word>(value);
  }
}

// The first arguments, which are in registers. One by one: copies of a whole array wait for its
// elements to be written.
template <typename... Arguments>
void keep_arguments(gpuperf_noted_call& note, Arguments... arguments) {
  size_t kept = 0;
  const auto keep = [&](Word word) {
    if (kept < GPUPERF_ARGUMENTS) note.arguments[kept++] = word;
  };
  (keep(to_word(arguments)), ...);
}

// Whether the launch is to be reported now, for the kernel side to walk its stack; where others are
// wanted it is kept to be reported with them. At once is reported what may become a graph's node,
// whatever else is wanted; and of what is wanted a graph's launch, for which graph its handle means
// changes with time.
bool is_reported_now(const gpuperf_noted_call& call, ThreadCounts& thread, uint64_t now_mono_ns) {
  constexpr uint64_t kGraphs =
      uint64_t{1} << GPUPERF_HOOK_cuGraphLaunch | uint64_t{1} << GPUPERF_HOOK_cuGraphLaunch_ptsz;
  if (is_capture_open()) return true;
  if (!launches_wanted()) return false;
  const auto entry = static_cast<gpuperf_hook_entry>(call.entry);
  if ((kGraphs >> entry & 1) != 0) return true;
  const gpuperf_noted_stack* stack = nullptr;
  if (each_launch_wanted() || thread.is_stack_due(now_mono_ns)) {
    stack = thread.take_stack(call.pc, call.sp, call.bp, now_mono_ns);
    if (stack == nullptr) return true;
  }
  return !thread.keep_launch(entry, now_mono_ns, stack);
}

std::atomic<Attend> g_attend = nullptr;

bool is_attention_wanted() {
  return __atomic_load_n(&gpuperf_hook_flags.attention, __ATOMIC_RELAXED) != 0;
}

__attribute__((noinline, cold)) void attend(gpuperf_hook_entry entry) {
  const Attend asked = g_attend.load(std::memory_order_acquire);
  if (asked == nullptr || g_is_off.load(std::memory_order_relaxed)) return;
  const int error = errno;
  asked(entry == GPUPERF_HOOK_cuGraphLaunch || entry == GPUPERF_HOOK_cuGraphLaunch_ptsz);
  errno = error;
}

__attribute__((noinline, cold)) void wake_sender() {
  const int error = errno;
  g_wake();
  errno = error;
}

template <gpuperf_hook_entry kEntry, void (*kEnter)(), typename Function>
struct Hook;

template <gpuperf_hook_entry kEntry, void (*kEnter)(), typename... Arguments>
struct Hook<kEntry, kEnter, CUresult(Arguments...)> {
  using Function = CUresult (*)(Arguments...);

  // Jumped to by gpuperf_hook_...: the frame around this one is the caller's.
  static CUresult count(Arguments... arguments) {
    if (is_attention_wanted()) [[unlikely]] {
      attend(kEntry);
      if (!hooks_count()) return reinterpret_cast<Function>(g_entries[kEntry].real)(arguments...);
    }
    ThreadCounts* const thread =
        g_is_off.load(std::memory_order_relaxed) ? nullptr : g_threads.find();
    const auto* const frame = static_cast<const Word*>(__builtin_frame_address(0));
    const auto sp = reinterpret_cast<Word>(frame + 2);
    if (thread == nullptr || !is_unchanged(g_entries[kEntry]) || !thread->begin(kEntry, sp)) {
      return reinterpret_cast<Function>(g_entries[kEntry].real)(arguments...);
    }
    const bool is_outermost = thread->depth() == 1;
    gpuperf_noted_call nested;
    gpuperf_noted_call& note = is_outermost ? thread->outermost() : nested;
    note.entry = kEntry;
    note.pad = 0;
    note.pc = frame[1];
    note.sp = sp;
    note.bp = frame[0];
    keep_arguments(note, arguments...);
    uint64_t start_ns = g_clock.read();
    thread->note_place(kEntry, start_ns);
    if (!g_is_awaited.load(std::memory_order_relaxed)) [[unlikely]] {
      wake_sender();
    }
    if (is_outermost) {
      if (is_reported_now(note, *thread, start_ns)) {
        note_launch(note);
        start_ns = g_clock.read();
      }
      thread->show_outermost(start_ns);
    }
    const CUresult result = reinterpret_cast<Function>(kEnter)(arguments...);
    const uint64_t end_ns = g_clock.read();
    const uint64_t duration_ns = end_ns > start_ns ? end_ns - start_ns : 0;
    if (duration_ns >= GPUPERF_NOTED_SLOW_NS) [[unlikely]] {
      note.start_mono_ns = start_ns;
      note.duration_ns = duration_ns;
      note.return_value = to_word(result);
      note_slow(note);
    }
    if (is_outermost) thread->hide_outermost();
    thread->end(duration_ns, result);
    return result;
  }
};

using Signature_cuLaunchKernel = decltype(::cuLaunchKernel);
using Signature_cuLaunchKernel_ptsz = Signature_cuLaunchKernel;
using Signature_cuLaunchKernelEx = decltype(::cuLaunchKernelEx);
using Signature_cuLaunchKernelEx_ptsz = Signature_cuLaunchKernelEx;
using Signature_cuLaunchCooperativeKernel = decltype(::cuLaunchCooperativeKernel);
using Signature_cuLaunchCooperativeKernel_ptsz = Signature_cuLaunchCooperativeKernel;
using Signature_cuGraphLaunch = decltype(::cuGraphLaunch);
using Signature_cuGraphLaunch_ptsz = Signature_cuGraphLaunch;

struct Hooked {
  const char* name;
  Word hook;   // of gpuperf_hook_...
  Word count;  // the function it jumps to while calls are counted
  Word* to_real;
  Word* to_count;
  Word* to_past;
};
const Hooked kHooked[] = {
#define GPUPERF_HOOKED(function)                                                               \
  {.name = #function,                                                                          \
   .hook = reinterpret_cast<Word>(&gpuperf_hook_##function),                                   \
   .count = reinterpret_cast<Word>(                                                            \
       &Hook<GPUPERF_HOOK_##function, gpuperf_enter_##function, Signature_##function>::count), \
   .to_real = &gpuperf_real_##function,                                                        \
   .to_count = &gpuperf_count_##function,                                                      \
   .to_past = &gpuperf_past_##function},
    GPUPERF_HOOK_ENTRIES(GPUPERF_HOOKED)
#undef GPUPERF_HOOKED
};

// All that is to be replaced: the entries, those that make graphs, and what gives their addresses
// away.
PointerReplacement g_replacements[GPUPERF_HOOK_COUNT + kGraphHooksMax + 2];
size_t g_replacement_count = 0;

// In place of what cuGetProcAddress found.
void replace_found(CUresult result, void** found) {
  if (result != CUDA_SUCCESS || found == nullptr) return;
  for (size_t i = 0; i < g_replacement_count; ++i) {
    if (g_replacements[i].real != reinterpret_cast<Word>(*found)) continue;
    *found = reinterpret_cast<void*>(g_replacements[i].ours);
    return;
  }
}

// The older form of cuGetProcAddress, which cuda.h no longer declares.
using LookUp = CUresult (*)(const char*, void**, int, cuuint64_t);
LookUp g_look_up = nullptr;
CUresult look_up(const char* name, void** found, int version, cuuint64_t flags) {
  const CUresult result = g_look_up(name, found, version, flags);
  replace_found(result, found);
  return result;
}

using LookUpV2 = decltype(&::cuGetProcAddress);
LookUpV2 g_look_up_v2 = nullptr;
CUresult look_up_v2(const char* name, void** found, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult* status) {
  const CUresult result = g_look_up_v2(name, found, version, flags, status);
  replace_found(result, found);
  return result;
}

// Whether a function begins as it must, to be entered past its breakpoint.
bool read_entry(Word real, Entry& entry, Word& past) {
  uint8_t bytes[8];
  std::memcpy(bytes, reinterpret_cast<const void*>(real), sizeof(bytes));
  const size_t push_at = std::memcmp(bytes, kEndbr64, sizeof(kEndbr64)) == 0 ? sizeof(kEndbr64) : 0;
  // A probe may be there already; that it sits on the same instruction is the daemon's rule.
  constexpr uint8_t kBreakpoint = 0xcc;
  if (bytes[push_at] != kPushRbp && bytes[push_at] != kBreakpoint) return false;
  // push %rbp; mov %rsp, %rbp: what else begins with a breakpoint here is not known.
  constexpr uint8_t kMoveRspRbp[] = {0x48, 0x89, 0xe5};
  if (std::memcmp(bytes + push_at + 1, kMoveRspRbp, sizeof(kMoveRspRbp)) != 0) return false;
  entry.real = real;
  entry.first_bytes_mask = ~(uint64_t{0xff} << (8 * push_at));
  std::memcpy(&entry.first_bytes, bytes, sizeof(bytes));
  entry.first_bytes &= entry.first_bytes_mask;
  past = real + push_at + 1;
  return true;
}

}  // namespace

bool install_launch_hooks(void (*wake)()) {
  g_wake = wake;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr || !g_threads.set_up()) return false;
  for (size_t i = 0; i < GPUPERF_HOOK_COUNT; ++i) {
    const Hooked& hooked = kHooked[i];
    const auto real = reinterpret_cast<Word>(dlsym(driver, hooked.name));
    if (real == 0 || !read_entry(real, g_entries[i], *hooked.to_past)) continue;
    *hooked.to_real = real;
    *hooked.to_count = hooked.count;
    g_replacements[g_replacement_count++] = {real, hooked.hook};
  }
  if (g_replacement_count == 0) return false;
  g_replacement_count +=
      list_graph_hooks(driver, std::span(g_replacements).subspan(g_replacement_count));
  g_look_up = reinterpret_cast<LookUp>(dlsym(driver, "cuGetProcAddress"));
  g_look_up_v2 = reinterpret_cast<LookUpV2>(dlsym(driver, "cuGetProcAddress_v2"));
  if (g_look_up != nullptr) {
    g_replacements[g_replacement_count++] = {reinterpret_cast<Word>(g_look_up),
                                             reinterpret_cast<Word>(&look_up)};
  }
  if (g_look_up_v2 != nullptr) {
    g_replacements[g_replacement_count++] = {reinterpret_cast<Word>(g_look_up_v2),
                                             reinterpret_cast<Word>(&look_up_v2)};
  }
  g_clock.tune();
  set_up_known_stacks();
  replace_pointers(driver, {g_replacements, g_replacement_count});
  g_is_installed = true;
  return true;
}

bool are_launches_counted() {
  const bool are_counted = g_is_installed && hooks_count() && g_threads.count() > 0;
  g_is_awaited.store(are_counted, std::memory_order_relaxed);
  return are_counted;
}

void send_launch_counts(void (*note)(const gpuperf_noted_calls&)) {
  if (!g_is_installed) return;
  const bool are_counted = hooks_count();
  if (are_counted) {
    g_clock.tune();
    notice_code_changes();
  }
  g_notes.send(note);
  for (uint32_t i = 0; i < g_threads.count(); ++i) {
    g_threads.at(i).send_launches();
    if (!are_counted) g_threads.at(i).renote_place();  // whoever counts next may be another daemon
  }
}

void set_attention(Attend attend) {
  if (attend != nullptr) g_attend.store(attend, std::memory_order_release);
  __atomic_store_n(&gpuperf_hook_flags.attention, static_cast<uint16_t>(attend != nullptr),
                   __ATOMIC_RELEASE);
}

void stop_counting_launches() { g_is_off.store(true); }

}  // namespace gpuperf::injector
