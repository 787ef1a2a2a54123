#include "injector/launch_hooks.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "injector/clocks.h"
#include "injector/cycle_clock.h"
#include "injector/entry_patches.h"
#include "injector/graph_hooks.h"
#include "injector/hook_code.h"
#include "injector/known_stacks.h"
#include "injector/launch_counts.h"
#include "injector/launch_gate.h"
#include "injector/note_points.h"

namespace gpuperf::injector {
namespace {

// Interval at which threads tell BPF again where their counts are: a daemon may have started since.
constexpr uint64_t kPlacesNs = 1'000'000'000;

bool g_is_installed = false;  // set before the injector's thread exists
bool g_can_log = false;
void (*g_wake)() = nullptr;
ThreadTable g_threads;
CallNotes g_notes(g_threads);

LaunchGate g_gate;

// See get_hook_times().
std::atomic<uint64_t> g_timed_hooks = 0;
std::atomic<uint64_t> g_timed_hooks_ns = 0;
// What takes longer is not the hook's: its thread lost its CPU.
constexpr uint64_t kTimedHookNsMax = 20'000;
// Summing up the counts moves their cache lines to another CPU. Calls right after that take longer
// than others and are not timed.
constexpr uint32_t kCallsPassed = 50;
std::atomic<uint32_t> g_calls_to_pass = 0;

void* find_driver() {
  static void* driver = nullptr;  // kept: the driver is never unloaded
  if (driver == nullptr) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver;
}

// The calling thread's counts; null = there are none.
ThreadCounts* find_thread() {
  const uintptr_t slot = gpuperf_hook_flags.thread_slot;
  ThreadCounts* const thread = slot != 0 ? ThreadTable::read_slot(slot) : nullptr;
  return thread != nullptr ? thread : g_threads.find();
}

bool is_wanted(Attention what) { return has_flag(gpuperf_hook_flags.attention, what); }

uint64_t read_clock() { return gpuperf_hook_flags.clock.read(); }

__attribute__((noinline, cold)) void wake_sender() {
  const int error = errno;
  g_wake();
  errno = error;
}

bool is_graph_launch(uint32_t entry) {
  return entry == GPUPERF_HOOK_cuGraphLaunch || entry == GPUPERF_HOOK_cuGraphLaunch_ptsz;
}

// Whether to report the launch now, so that BPF walks its stack. A launch that may become a graph
// node is reported now whatever else is wanted. So is a graph launch if launches are wanted: which
// graph its handle means changes over time. Other wanted launches are kept and reported together.
bool is_reported_now(const gpuperf_noted_call& call, ThreadCounts& thread) {
  const uint64_t now_mono_ns = call.start_mono_ns;
  if (is_capture_open()) return true;
  const auto entry = static_cast<gpuperf_hook_entry>(call.entry);
  if (is_graph_launch(entry)) return true;
  KnownStack* stack = nullptr;
  const bool each = each_launch_wanted();
  if (each || thread.is_stack_due(now_mono_ns)) {
    stack = thread.take_stack(call.pc, call.sp, call.bp, now_mono_ns);
    if (stack == nullptr) return true;
  }
  const bool is_kept = thread.keep_launch(entry, now_mono_ns, stack, each);
  if (thread.must_send_launches()) wake_sender();
  return !is_kept;
}

GPUPERF_HOOK_CODE void report_launch(gpuperf_noted_call& call, ThreadCounts& thread) {
  if (!is_reported_now(call, thread)) return;
  note_launch(call);
  call.start_mono_ns = read_clock();
}

std::atomic<Attend> g_attend = nullptr;

// Not for copies and memsets: what `attend` does was tested only at launches.
__attribute__((noinline, cold)) void attend(uint32_t entry) {
  if (entry > GPUPERF_HOOK_cuGraphLaunch_ptsz) return;
  const Attend asked = g_attend.load(std::memory_order_acquire);
  if (asked == nullptr || is_special(kNotCounted)) return;
  const int error = errno;
  asked(is_graph_launch(entry));
  errno = error;
}

__attribute__((noinline)) void find_target(CallFrame& frame) {
  const int error = errno;
  Word arguments[kRegisterArguments];
  std::copy_n(frame.call.arguments, kRegisterArguments, arguments);
  frame.target = find_call_target(frame.call.entry, arguments, frame.caller_stack);
  if (frame.target.has_work) frame.kind |= kLoggedCall;
  errno = error;
}

uint32_t cut_duration(uint64_t duration_ns) {
  return static_cast<uint32_t>(std::min<uint64_t>(duration_ns, UINT32_MAX));
}

void log_call(ThreadCounts& thread, const LoggedCall& call) {
  if (thread.ring().add(call)) wake_sender();
}

__attribute__((noinline)) void log_call(const CallFrame& frame, uint64_t duration_ns,
                                        uint32_t result) {
  log_call(*frame.thread, {.start_mono_ns = frame.call.start_mono_ns,
                           .size = frame.target.size,
                           .duration_ns = cut_duration(duration_ns),
                           .stream = frame.target.stream,
                           .tid = frame.thread->tid(),
                           .result = static_cast<uint16_t>(result),
                           .entry = static_cast<uint16_t>(frame.call.entry)});
}

void begin_frame(CallFrame& frame, ThreadCounts& thread, uint32_t kind) {
  frame.thread = &thread;
  frame.kind = kind;
  frame.call.pc = frame.caller_pc;
  frame.call.sp = reinterpret_cast<Word>(frame.caller_stack);
  frame.call.bp = frame.caller_bp;
}

WayIntoDriver enter(const HookedEntry& hooked) { return {hooked.past, hooked.stack_words}; }

// Begins a call that no hook counts, so that hold_launches can wait for its end.
WayIntoDriver begin_watched_call(CallFrame* frame) {
  const HookedEntry& hooked = gpuperf_entries[frame->call.entry];
  ThreadCounts* const thread = is_special(kNotCounted) ? nullptr : find_thread();
  if (thread == nullptr) return {0, hooked.real};
  thread->begin_watched(reinterpret_cast<Word>(frame->caller_stack));
  if (thread->depth() == 1) g_gate.pass(thread->is_at_gate());
  begin_frame(*frame, *thread, kWatchedCall);
  frame->call.return_value = hooked.real;
  return {reinterpret_cast<Word>(&gpuperf_front), hooked.stack_words};
}

void count_progress() {
  ThreadCounts* const thread = is_special(kNotCounted) ? nullptr : find_thread();
  if (thread != nullptr) thread->count_progress();
}

// Whether the calling thread is the one whose hook is to be timed.
bool take_timing() {
  return is_special(kTimed) &&
         (gpuperf_hook_flags.special.fetch_and(static_cast<uint16_t>(~kTimed)) & kTimed) != 0;
}

// Times the code that other calls run, as it finds the caches.
WayIntoDriver begin_timed_call(CallFrame* frame) {
  if (const uint32_t left = g_calls_to_pass.load(std::memory_order_relaxed); left > 0) {
    const WayIntoDriver way = gpuperf_begin_call(frame);
    g_calls_to_pass.store(left - 1, std::memory_order_relaxed);
    set_special(kTimed, true);
    return way;
  }
  const uint64_t begin_ns = read_clock();
  const WayIntoDriver way = gpuperf_begin_call(frame);
  if (way.past == 0 || (frame->kind & kWatchedCall) != 0) return way;
  frame->kind |= kTimedCall;
  frame->thread->set_timed_ns(read_clock() - begin_ns);
  return way;
}

uint32_t end_timed_call(CallFrame* frame, uint32_t result) {
  frame->kind &= ~kTimedCall;
  const ThreadCounts& thread = *frame->thread;
  const uint64_t begin_ns = read_clock();
  (void)gpuperf_end_call(frame, result);
  const uint64_t took_ns = thread.timed_ns() + (read_clock() - begin_ns);
  g_timed_hooks_ns.fetch_add(std::min(took_ns, kTimedHookNsMax), std::memory_order_relaxed);
  g_timed_hooks.fetch_add(1, std::memory_order_relaxed);
  return result;
}

// A call that may need anything: begins it.
__attribute__((noinline)) WayIntoDriver begin_any_call(CallFrame* frame) {
  if (take_timing()) return begin_timed_call(frame);
  gpuperf_noted_call& call = frame->call;
  const HookedEntry& hooked = gpuperf_entries[call.entry];
  const auto entry = static_cast<gpuperf_hook_entry>(call.entry);
  const WayIntoDriver front_door{0, hooked.real};
  if (is_wanted(kAsked)) attend(entry);
  if (!hooks_count()) {
    if (is_wanted(kProgress)) count_progress();
    return is_wanted(kWatched) ? begin_watched_call(frame) : front_door;
  }
  ThreadCounts* const thread = is_special(kNotCounted) ? nullptr : find_thread();
  if (thread == nullptr || !hooked.is_unchanged() ||
      !thread->begin(entry, reinterpret_cast<Word>(frame->caller_stack))) {
    return front_door;
  }
  const bool is_outermost = thread->depth() == 1;
  if (is_outermost) g_gate.pass(thread->is_at_gate());
  begin_frame(*frame, *thread, is_outermost ? kPlainCall : kInnerCall);
  if (is_special(kLogged) && is_outermost) find_target(*frame);
  call.start_mono_ns = read_clock();
  thread->note_place(entry);
  if (is_special(kUnawaited)) wake_sender();
  if (is_outermost) {
    if (launches_wanted() || is_capture_open()) report_launch(call, *thread);
    thread->show_outermost(call);
  }
  return enter(hooked);
}

// A call that has begun, and whose launch is not just to be kept.
GPUPERF_HOOK_CODE __attribute__((noinline)) WayIntoDriver report_begun_call(CallFrame* frame) {
  report_launch(frame->call, *frame->thread);
  frame->thread->show_outermost(frame->call);
  return enter(gpuperf_entries[frame->call.entry]);
}

__attribute__((noinline)) uint32_t end_any_call(CallFrame* frame, uint32_t result,
                                                uint64_t end_ns) {
  if ((frame->kind & kTimedCall) != 0) return end_timed_call(frame, result);
  if ((frame->kind & kWatchedCall) != 0) {
    frame->thread->end_watched();
    return result;
  }
  const uint64_t start_ns = frame->call.start_mono_ns;
  const uint64_t duration_ns = end_ns > start_ns ? end_ns - start_ns : 0;
  if (duration_ns >= GPUPERF_NOTED_SLOW_NS) {
    frame->call.duration_ns = duration_ns;
    frame->call.return_value = result;
    note_slow(frame->call);
  }
  if ((frame->kind & kLoggedCall) != 0) log_call(*frame, duration_ns, result);
  if ((frame->kind & kInnerCall) == 0) frame->thread->hide_outermost();
  frame->thread->end(duration_ns, static_cast<int32_t>(result));
  return result;
}

}  // namespace

// Both are called by gpuperf_count (hook_code.cpp), which makes the frame. They are short and run
// straight on where a call is only counted and its launch kept: a launch finds little of this code
// in the caches, and none of its branches predicted.
extern "C" GPUPERF_HOOK_CODE WayIntoDriver gpuperf_begin_call(CallFrame* frame) {
  gpuperf_noted_call& call = frame->call;
  const HookedEntry& hooked = gpuperf_entries[call.entry];
  if (is_any_special()) [[unlikely]]
    return begin_any_call(frame);
  ThreadCounts* const thread = ThreadTable::read_slot(gpuperf_hook_flags.thread_slot);
  if (thread == nullptr || !hooked.is_unchanged() ||
      !thread->begin_plain(call.entry, reinterpret_cast<Word>(frame->caller_stack))) [[unlikely]] {
    return begin_any_call(frame);
  }
  // Once more: a gate that closes now is seen, or sees the call.
  uint64_t now_mono_ns = 0;
  if (is_any_special() || !gpuperf_hook_flags.clock.read_counter(now_mono_ns)) [[unlikely]] {
    thread->take_back_plain();
    return begin_any_call(frame);
  }
  thread->count_plain();
  begin_frame(*frame, *thread, kPlainCall);
  call.start_mono_ns = now_mono_ns;
  if (launches_wanted() && (each_launch_wanted() || is_graph_launch(call.entry) ||
                            !thread->keep_plain_launch(call.entry, now_mono_ns))) [[unlikely]] {
    return report_begun_call(frame);
  }
  thread->show_outermost(call);
  return enter(hooked);
}

extern "C" GPUPERF_HOOK_CODE uint32_t gpuperf_end_call(CallFrame* frame, uint32_t result) {
  uint64_t end_ns = 0;
  if (!gpuperf_hook_flags.clock.read_counter(end_ns)) [[unlikely]]
    return end_any_call(frame, result, read_clock());
  // Wraps if the clock stepped back.
  const uint64_t duration_ns = end_ns - frame->call.start_mono_ns;
  ThreadCounts& thread = *frame->thread;
  if (duration_ns >= GPUPERF_NOTED_SLOW_NS || result != 0 || frame->kind != kPlainCall ||
      !thread.is_in_counted_call()) [[unlikely]] {
    return end_any_call(frame, result, end_ns);
  }
  thread.hide_outermost();
  thread.end_plain(duration_ns);
  return 0;
}

bool install_launch_hooks(void (*wake)()) {
  g_wake = wake;
  void* driver = find_driver();
  if (driver == nullptr) return false;
  if (g_is_installed) {
    set_special(kNotCounted, false);
    replace_entries(driver);
    return true;
  }
  if (!g_threads.set_up() || !list_entries(driver)) return false;
  gpuperf_hook_flags.thread_slot = g_threads.slot();
  if (g_threads.slot() == 0) set_special(kNoSlot, true);
  g_can_log = set_up_stream_numbers(driver);
  gpuperf_hook_flags.clock.tune();
  set_up_known_stacks();
  // Where others launch already, their first launch may wake the injector's thread.
  g_is_installed = true;
  replace_entries(driver);
  return true;
}

bool are_launches_counted() {
  const bool are_counted = g_is_installed && hooks_count() && g_threads.count() > 0;
  set_special(kUnawaited, !are_counted);
  return are_counted;
}

void send_launch_counts(void (*note)(const gpuperf_noted_calls&)) {
  if (!g_is_installed) return;
  const bool are_counted = hooks_count();
  if (are_counted) {
    gpuperf_hook_flags.clock.tune();
    notice_code_changes();
    if (!is_special(kTimed)) {
      g_calls_to_pass.store(kCallsPassed, std::memory_order_relaxed);
      set_special(kTimed, true);
    }
  }
  if (!are_counted) forget_noted_stacks();  // a daemon that starts later has none of them
  g_notes.send(note);
  static uint64_t next_places_ns = 0;
  const uint64_t now_ns = read_mono_ns();
  const bool are_places_due = !are_counted || now_ns >= next_places_ns;
  if (are_places_due) next_places_ns = now_ns + kPlacesNs;
  for (uint32_t i = 0; are_places_due && i < g_threads.count(); ++i) {
    g_threads.at(i).renote_place();
  }
}

void send_kept_launches() {
  if (!g_is_installed) return;
  for (uint32_t i = 0; i < g_threads.count(); ++i) (void)g_threads.at(i).send_launches();
}

bool hold_launches(uint64_t patience_ms, uint64_t held_ms_max) {
  if (!g_is_installed || !are_launches_followed()) return false;
  return g_gate.close(
      [] {
        for (uint32_t i = 0; i < g_threads.count(); ++i) {
          ThreadCounts& thread = g_threads.at(i);
          // A signal handler may launch while the call it interrupted waits.
          if (thread.depth() != (thread.is_at_gate().load() ? 1 : 0)) return true;
        }
        return false;
      },
      patience_ms, held_ms_max);
}

bool release_launches() { return g_gate.open(); }

void watch_launches(bool is_on) { set_flag(gpuperf_hook_flags.attention, kWatched, is_on); }

bool are_launches_followed() { return hooks_count() || is_wanted(kWatched); }

bool can_log_calls() { return g_is_installed && g_can_log; }

void set_call_log(AskStream ask) {
  if (ask == nullptr) set_special(kLogged, false);
  set_stream_asker(ask);
  if (ask != nullptr) set_special(kLogged, true);
}

bool is_call_log_on() { return is_special(kLogged) && !is_special(kNotCounted); }

uint64_t read_call_clock_ns() { return read_clock(); }

void log_wait(uint16_t entry, uint64_t start_mono_ns, uint32_t result) {
  const int error = errno;
  const uint64_t end_ns = read_clock();
  if (ThreadCounts* const thread = find_thread(); thread != nullptr) {
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
  set_flag(gpuperf_hook_flags.attention, kAsked, attend != nullptr);
}

void stop_counting_launches() { set_special(kNotCounted, true); }

void set_progress(bool is_on) { set_flag(gpuperf_hook_flags.attention, kProgress, is_on); }

uint64_t get_progress() {
  uint64_t calls = 0;
  for (uint32_t i = 0; g_is_installed && i < g_threads.count(); ++i) {
    calls += g_threads.at(i).get_calls();
  }
  return calls;
}

HookTimes get_hook_times() {
  return {g_timed_hooks.load(std::memory_order_relaxed),
          g_timed_hooks_ns.load(std::memory_order_relaxed)};
}

uint32_t get_launch_memory_kib() {
  return g_is_installed ? static_cast<uint32_t>(g_threads.count() * sizeof(ThreadCounts) / 1024)
                        : 0;
}

bool remove_launch_hooks(uint64_t patience_ms) {
  if (!g_is_installed) return true;
  set_call_log(nullptr);
  watch_launches(false);
  set_progress(false);
  // Calls that find the hook from now on go through the front door.
  set_special(kNotCounted, true);
  restore_entries(find_driver());
  const auto is_in_call = [] {
    for (uint32_t i = 0; i < g_threads.count(); ++i) {
      if (g_threads.at(i).depth() != 0) return true;
    }
    return false;
  };
  const uint64_t start_ms = read_mono_ms();
  while (is_in_call() && read_mono_ms() - start_ms < patience_ms) (void)usleep(1'000);
  return !is_in_call();
}

}  // namespace gpuperf::injector
