#include "injector/launch_hooks.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>

#include "injector/cycle_clock.h"
#include "injector/graph_hooks.h"
#include "injector/hook_code.h"
#include "injector/known_stacks.h"
#include "injector/launch_counts.h"
#include "injector/launch_gate.h"
#include "injector/note_points.h"
#include "injector/pointer_patch.h"
#include "injector/wait_hooks.h"

namespace gpuperf::injector {
namespace {

// What the driver's functions begin with (all 249 of driver 580.95 that were looked at); behind
// endbr64 where a driver is built with it.
constexpr uint8_t kPushRbp = 0x55;
constexpr uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

// The driver's function; none, or one that begins otherwise, is not hooked.
struct Entry {
  Word past = 0;  // behind its first instruction
  // Its first 8 bytes, less the one that the daemon's breakpoint replaces.
  uint64_t first_bytes = 0;
  uint64_t first_bytes_mask = 0;
};

Entry g_entries[GPUPERF_HOOK_COUNT];
bool g_is_installed = false;             // set before the injector's thread is there
std::atomic<bool> g_is_off = false;      // a forked child
std::atomic<bool> g_is_awaited = false;  // the injector's thread knows that there are counts
std::atomic<bool> g_is_logging = false;
bool g_can_log = false;
void (*g_wake)() = nullptr;
CycleClock g_clock;
ThreadTable g_threads;
LaunchGate g_gate;
CallNotes g_notes(g_threads);

bool is_unchanged(uint32_t entry) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, reinterpret_cast<const void*>(gpuperf_real[entry]), sizeof(bytes));
  return (bytes & g_entries[entry].first_bytes_mask) == g_entries[entry].first_bytes;
}

bool is_graph_launch(uint32_t entry) {
  return entry == GPUPERF_HOOK_cuGraphLaunch || entry == GPUPERF_HOOK_cuGraphLaunch_ptsz;
}

// Whether the launch is to be reported now, for the kernel side to walk its stack; where others are
// wanted it is kept to be reported with them. At once is reported what may become a graph's node,
// whatever else is wanted; and of what is wanted a graph's launch, for which graph its handle means
// changes with time.
bool is_reported_now(const gpuperf_noted_call& call, ThreadCounts& thread, uint64_t now_mono_ns) {
  if (is_capture_open()) return true;
  if (!launches_wanted()) return false;
  const auto entry = static_cast<gpuperf_hook_entry>(call.entry);
  if (is_graph_launch(entry)) return true;
  KnownStack* stack = nullptr;
  const bool each = each_launch_wanted();
  if (each || thread.is_stack_due(now_mono_ns)) {
    stack = thread.take_stack(call.pc, call.sp, call.bp, now_mono_ns);
    if (stack == nullptr) return true;
  }
  return !thread.keep_launch(entry, now_mono_ns, stack, each);
}

std::atomic<Attend> g_attend = nullptr;

bool is_attention_wanted() {
  return __atomic_load_n(&gpuperf_hook_flags.attention, __ATOMIC_RELAXED) != 0;
}

// Copies and memsets are not asked: what is done then was tried at launches only.
__attribute__((noinline, cold)) void attend(uint32_t entry) {
  if (entry > GPUPERF_HOOK_cuGraphLaunch_ptsz) return;
  const Attend asked = g_attend.load(std::memory_order_acquire);
  if (asked == nullptr || g_is_off.load(std::memory_order_relaxed)) return;
  const int error = errno;
  asked(is_graph_launch(entry));
  errno = error;
}

__attribute__((noinline, cold)) void wake_sender() {
  const int error = errno;
  g_wake();
  errno = error;
}

__attribute__((noinline)) CallTarget find_target(uint32_t entry, const CallFrame* frame) {
  const int error = errno;
  const CallTarget target = find_call_target(entry, frame->arguments, frame->caller_stack);
  errno = error;
  return target;
}

uint32_t cut_duration(uint64_t duration_ns) {
  return static_cast<uint32_t>(std::min<uint64_t>(duration_ns, UINT32_MAX));
}

void log_call(ThreadCounts& thread, const LoggedCall& call) {
  if (thread.ring().add(call)) wake_sender();
}

__attribute__((noinline)) void log_call(const CallFrame& frame, uint64_t duration_ns,
                                        uint32_t result) {
  log_call(*frame.thread, {.start_mono_ns = frame.start_ns,
                           .size = frame.target.size,
                           .duration_ns = cut_duration(duration_ns),
                           .stream = frame.target.stream,
                           .tid = frame.thread->tid(),
                           .result = static_cast<uint16_t>(result),
                           .entry = static_cast<uint16_t>(frame.note->entry)});
}

constexpr uint8_t kStackWords[] = {
#define GPUPERF_STACK_WORDS(function, arguments) \
  (arguments) > kRegisterArguments ? (arguments)-kRegisterArguments : 0,
    GPUPERF_HOOK_ENTRIES(GPUPERF_STACK_WORDS)
#undef GPUPERF_STACK_WORDS
};

// All that is to be replaced: the entries, those that make graphs or wait, and what gives their
// addresses away.
PointerReplacement g_replacements[GPUPERF_HOOK_COUNT + kGraphHooksMax + kWaitHooksMax + 2];
size_t g_replacement_count = 0;

// In place of what cuGetProcAddress found.
void replace_found(uint32_t result, void** found) {
  if (result != 0 || found == nullptr) return;
  for (size_t i = 0; i < g_replacement_count; ++i) {
    if (g_replacements[i].real != reinterpret_cast<Word>(*found)) continue;
    *found = reinterpret_cast<void*>(g_replacements[i].ours);
    return;
  }
}

// cuGetProcAddress and its newer form; results as in enum CUresult.
using LookUp = uint32_t (*)(const char*, void**, int, uint64_t);
LookUp g_look_up = nullptr;
uint32_t look_up(const char* name, void** found, int version, uint64_t flags) {
  const uint32_t result = g_look_up(name, found, version, flags);
  replace_found(result, found);
  return result;
}

using LookUpV2 = uint32_t (*)(const char*, void**, int, uint64_t, void*);
LookUpV2 g_look_up_v2 = nullptr;
uint32_t look_up_v2(const char* name, void** found, int version, uint64_t flags, void* status) {
  const uint32_t result = g_look_up_v2(name, found, version, flags, status);
  replace_found(result, found);
  return result;
}

// Whether a function begins as it must, to be entered past its breakpoint.
bool read_entry(Word real, Entry& entry) {
  uint8_t bytes[8];
  std::memcpy(bytes, reinterpret_cast<const void*>(real), sizeof(bytes));
  const size_t push_at = std::memcmp(bytes, kEndbr64, sizeof(kEndbr64)) == 0 ? sizeof(kEndbr64) : 0;
  // A probe may be there already; that it sits on the same instruction is the daemon's rule.
  constexpr uint8_t kBreakpoint = 0xcc;
  if (bytes[push_at] != kPushRbp && bytes[push_at] != kBreakpoint) return false;
  // push %rbp; mov %rsp, %rbp: what else begins with a breakpoint here is not known.
  constexpr uint8_t kMoveRspRbp[] = {0x48, 0x89, 0xe5};
  if (std::memcmp(bytes + push_at + 1, kMoveRspRbp, sizeof(kMoveRspRbp)) != 0) return false;
  entry.first_bytes_mask = ~(uint64_t{0xff} << (8 * push_at));
  std::memcpy(&entry.first_bytes, bytes, sizeof(bytes));
  entry.first_bytes &= entry.first_bytes_mask;
  entry.past = real + push_at + 1;
  return true;
}

}  // namespace

// Called by the code of hook_code.cpp: the frame around its own is the caller's.
extern "C" WayIntoDriver gpuperf_begin_call(Word a, Word b, Word c, Word d, Word e, Word f,
                                            CallFrame* frame, uint32_t entry) {
  const WayIntoDriver front_door{0, gpuperf_real[entry]};
  if (is_attention_wanted()) [[unlikely]] {
    attend(entry);
    if (!hooks_count()) return front_door;
  }
  ThreadCounts* const thread =
      g_is_off.load(std::memory_order_relaxed) ? nullptr : g_threads.find();
  const auto sp = reinterpret_cast<Word>(frame->caller_stack);
  if (thread == nullptr || !is_unchanged(entry) ||
      !thread->begin(static_cast<gpuperf_hook_entry>(entry), sp)) {
    return front_door;
  }
  const bool is_outermost = thread->depth() == 1;
  if (is_outermost) g_gate.pass(thread->is_at_gate());
  gpuperf_noted_call& note = is_outermost ? thread->outermost() : frame->nested;
  frame->thread = thread;
  frame->note = &note;
  note.entry = entry;
  note.pad = 0;
  note.pc = frame->caller_pc;
  note.sp = sp;
  note.bp = frame->caller_bp;
  note.arguments[0] = a;
  note.arguments[1] = b;
  note.arguments[2] = c;
  note.arguments[3] = d;
  note.arguments[4] = e;
  note.arguments[5] = f;
  frame->is_logged = g_is_logging.load(std::memory_order_relaxed) && is_outermost;
  if (frame->is_logged) [[unlikely]] {
    frame->target = find_target(entry, frame);
    frame->is_logged = frame->target.has_work;
  }
  uint64_t start_ns = g_clock.read();
  thread->note_place(static_cast<gpuperf_hook_entry>(entry), start_ns);
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
  frame->start_ns = start_ns;
  return {g_entries[entry].past, kStackWords[entry]};
}

extern "C" uint32_t gpuperf_end_call(CallFrame* frame, uint32_t result) {
  const uint64_t end_ns = g_clock.read();
  const uint64_t start_ns = frame->start_ns;
  const uint64_t duration_ns = end_ns > start_ns ? end_ns - start_ns : 0;
  if (duration_ns >= GPUPERF_NOTED_SLOW_NS) [[unlikely]] {
    frame->note->start_mono_ns = start_ns;
    frame->note->duration_ns = duration_ns;
    frame->note->return_value = result;
    note_slow(*frame->note);
  }
  if (frame->is_logged) [[unlikely]] {
    log_call(*frame, duration_ns, result);
  }
  if (frame->note != &frame->nested) frame->thread->hide_outermost();
  frame->thread->end(duration_ns, static_cast<int32_t>(result));
  return result;
}

bool install_launch_hooks(void (*wake)()) {
  g_wake = wake;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr || !g_threads.set_up()) return false;
  for (uint32_t i = 0; i < GPUPERF_HOOK_COUNT; ++i) {
    const auto real = reinterpret_cast<Word>(dlsym(driver, get_entry_name(i)));
    if (real == 0 || !read_entry(real, g_entries[i])) continue;
    gpuperf_real[i] = real;
    g_replacements[g_replacement_count++] = {real, find_hook(i)};
  }
  if (g_replacement_count == 0) return false;
  g_replacement_count +=
      list_graph_hooks(driver, std::span(g_replacements).subspan(g_replacement_count));
  g_replacement_count +=
      list_wait_hooks(driver, std::span(g_replacements).subspan(g_replacement_count));
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
  g_can_log = set_up_stream_numbers(driver);
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
  if (!are_counted) forget_noted_stacks();  // a daemon that starts later has none of them
  g_notes.send(note);
  for (uint32_t i = 0; i < g_threads.count(); ++i) {
    g_threads.at(i).send_launches();
    if (!are_counted) g_threads.at(i).renote_place();
  }
}

bool hold_launches() {
  if (!g_is_installed || !hooks_count()) return false;
  return g_gate.close([] {
    for (uint32_t i = 0; i < g_threads.count(); ++i) {
      ThreadCounts& thread = g_threads.at(i);
      // A signal handler may launch while the call that it interrupts waits.
      if (thread.depth() != (thread.is_at_gate().load() ? 1 : 0)) return true;
    }
    return false;
  });
}

bool release_launches() { return g_gate.open(); }

bool can_log_calls() { return g_is_installed && g_can_log; }

void set_call_log(AskStream ask) {
  if (ask == nullptr) g_is_logging.store(false);
  set_stream_asker(ask);
  if (ask != nullptr) g_is_logging.store(true);
}

bool is_call_log_on() {
  return g_is_logging.load(std::memory_order_relaxed) && !g_is_off.load(std::memory_order_relaxed);
}

uint64_t read_call_clock_ns() { return g_clock.read(); }

void log_wait(uint16_t entry, uint64_t start_mono_ns, uint32_t result) {
  const int error = errno;
  const uint64_t end_ns = g_clock.read();
  if (ThreadCounts* const thread = g_threads.find(); thread != nullptr) {
    const uint64_t duration_ns = end_ns > start_mono_ns ? end_ns - start_mono_ns : 0;
    log_call(*thread, {.start_mono_ns = start_mono_ns,
                       .size = 0,
                       .duration_ns = cut_duration(duration_ns),
                       .stream = kNoStream,
                       .tid = thread->tid(),
                       .result = static_cast<uint16_t>(result),
                       .entry = entry});
  }
  errno = error;
}

uint64_t take_logged_calls(TakeCall take, void* data) {
  if (!g_is_installed) return 0;
  uint64_t lost = 0;
  for (uint32_t i = 0; i < g_threads.count(); ++i) {
    CallRing& ring = g_threads.at(i).ring();
    ring.take([take, data](const LoggedCall& call) { take(data, call); });
    lost += ring.lost_count();
  }
  return lost;
}

uint64_t get_noted_calls() {
  return g_is_installed ? __atomic_load_n(&g_threads.process().noted, __ATOMIC_RELAXED) : 0;
}

void set_attention(Attend attend) {
  if (attend != nullptr) g_attend.store(attend, std::memory_order_release);
  __atomic_store_n(&gpuperf_hook_flags.attention, static_cast<uint16_t>(attend != nullptr),
                   __ATOMIC_RELEASE);
}

void stop_counting_launches() { g_is_off.store(true); }

}  // namespace gpuperf::injector
