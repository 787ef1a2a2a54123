// Stand-in for libgpuperf_injector.so: launch hooks as bpf/hook_notes.h wants them, of one thread,
// called by name. Built with frame pointers, so that a hook finds its caller.

#include <dlfcn.h>
#include <time.h>

#include <atomic>
#include <bit>
#include <cstdlib>

#include "injector/note_points.h"
#include "launch_standin.h"

namespace {

using namespace gpuperf;

struct Hook {
  gpuperf_hook_entry entry;
  gpuperf_entry_counts counts;
  gpuperf_noted_counts noted;
};

Hook g_launches{.entry = GPUPERF_HOOK_cuLaunchKernel, .counts = {}, .noted = {}};
Hook g_graph_launches{.entry = GPUPERF_HOOK_cuGraphLaunch, .counts = {}, .noted = {}};
hooked_totals g_totals;
gpuperf_noted_call g_call;
gpuperf_thread_counts g_counts;
gpuperf_hooked_thread g_thread{.total_ns = 0,
                               .start_mono_ns = 0,
                               .call_address = reinterpret_cast<uint64_t>(&g_call),
                               .counts_address = reinterpret_cast<uint64_t>(&g_counts)};
gpuperf_hooked_thread* g_threads[] = {&g_thread};
gpuperf_hooked_process g_process{.noted = 0,
                                 .threads = reinterpret_cast<uint64_t>(g_threads),
                                 .thread_count = 1,
                                 .pad = 0,
                                 .counts = {},
                                 .is_called = {}};
uint64_t g_noted_slow_ns = GPUPERF_NOTED_SLOW_NS;
bool g_is_thread_noted;

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// As in bpf/cells.bpf.c.
uint32_t bucket_of(uint64_t ns) {
  if (ns < 1u << GPUPERF_FIRST_OCTAVE) return static_cast<uint32_t>(ns >> GPUPERF_BUCKET_SHIFT);
  const int octave = static_cast<int>(std::bit_width(ns)) - 1;
  if (octave > GPUPERF_LAST_OCTAVE) return GPUPERF_BUCKETS - 1;
  const auto sub = static_cast<uint32_t>(ns >> (octave - GPUPERF_SUB_BUCKET_BITS)) & 15;
  return (static_cast<uint32_t>(octave - GPUPERF_FIRST_OCTAVE + 1) << 4) + sub;
}

// Behind the first instruction, `push %rbp`, in whose place a breakpoint may be.
void* find_behind_entry(const char* name) {
  auto* entry = static_cast<unsigned char*>(dlsym(RTLD_DEFAULT, name));
  if (entry == nullptr || (*entry != 0x55 && *entry != 0xcc)) abort();
  return entry + 1;
}

void add_error(gpuperf_entry_counts& counts, int status) {
  const uint64_t tag = 1ull << 32 | static_cast<uint32_t>(status);
  for (gpuperf_error_count& slot : counts.errors) {
    if (slot.status_tag != 0 && slot.status_tag != tag) continue;
    slot.status_tag = tag;
    slot.count += 1;
    return;
  }
  counts.other_errors += 1;
}

void begin_call(const gpuperf_noted_call& noted, Hook& hook) {
  gpuperf_noted_call& call = g_call;
  g_thread.start_mono_ns = 0;  // of a call that was left by longjmp
  std::atomic_signal_fence(std::memory_order_seq_cst);
  call = noted;
  if (!g_is_thread_noted) {
    note_thread({.hooked_address = reinterpret_cast<uint64_t>(&g_thread),
                 .process_address = reinterpret_cast<uint64_t>(&g_process),
                 .entry = hook.entry,
                 .pad = 0});
    g_is_thread_noted = true;
  }
  if (launches_wanted()) note_launch(call);
  g_counts.entries[hook.entry] = reinterpret_cast<uint64_t>(&hook.counts);
  g_process.is_called[0] |= 1ull << hook.entry;
  hook.counts.calls += 1;
  call.start_mono_ns = now_ns();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  g_thread.start_mono_ns = call.start_mono_ns;
}

// How long it took.
uint64_t end_call(int status, Hook& hook) {
  gpuperf_noted_call& call = g_call;
  const uint64_t ns = now_ns() - call.start_mono_ns;
  g_thread.total_ns += ns;
  gpuperf_entry_counts& counts = hook.counts;
  counts.buckets[bucket_of(ns)] += 1;
  counts.total_ns += ns;
  counts.self_ns += ns;
  if (ns > counts.max_ns) counts.max_ns = ns;
  if (~ns > counts.inverted_min_ns) counts.inverted_min_ns = ~ns;
  if (status != 0) add_error(counts, status);
  call.duration_ns = ns;
  call.return_value = static_cast<uint64_t>(status);
  if (ns >= g_noted_slow_ns) note_slow(call);
  g_thread.start_mono_ns = 0;
  return ns;
}

void flush(Hook& hook) {
  if (hook.counts.calls == 0) return;
  const uint64_t sequence = g_process.noted + 1;
  const size_t older = hook.noted.sequence[0] < hook.noted.sequence[1] ? 0 : 1;
  g_process.counts[hook.entry] = reinterpret_cast<uint64_t>(&hook.noted);
  hook.noted.counts[older] = hook.counts;
  hook.noted.sequence[older] = sequence;
  const gpuperf_noted_calls note{.process_address = reinterpret_cast<uint64_t>(&g_process),
                                 .sequence = sequence,
                                 .entry = hook.entry,
                                 .pad = 0};
  note_calls(note);
  g_process.noted = sequence;
}

}  // namespace

extern "C" {
__attribute__((visibility("hidden"))) void* g_behind_launch;
__attribute__((visibility("hidden"))) void* g_behind_graph_launch;
__attribute__((visibility("hidden"))) int enter_launch(LAUNCH_PARAMETERS);
__attribute__((visibility("hidden"))) int enter_graph_launch(void* exec, void* stream);
}
// What the entry would do, and on behind it.
__asm__(
    ".text\n"
    "enter_launch: push %rbp\n jmp *g_behind_launch(%rip)\n"
    "enter_graph_launch: push %rbp\n jmp *g_behind_graph_launch(%rip)\n");

extern "C" {

// The caller, as its registers are once a function that begins here has returned to it.
#define MAKE_NOTED_CALL(entry_index, ...)                                                  \
  {                                                                                        \
    .start_mono_ns = 0, .duration_ns = 0,                                                  \
    .pc = reinterpret_cast<uint64_t>(__builtin_return_address(0)),                         \
    .sp = reinterpret_cast<uint64_t>(__builtin_frame_address(0)) + 16,                     \
    .bp = *static_cast<uint64_t*>(__builtin_frame_address(0)), .arguments = {__VA_ARGS__}, \
    .return_value = 0, .entry = entry_index, .pad = 0                                      \
  }

int hooked_launch(LAUNCH_PARAMETERS) {
  if (!hooks_count()) {
    g_is_thread_noted = false;
    g_totals.traps += 1;
    return cuLaunchKernel(LAUNCH_ARGUMENTS);
  }
  g_behind_launch = find_behind_entry("cuLaunchKernel");
  begin_call(MAKE_NOTED_CALL(GPUPERF_HOOK_cuLaunchKernel, reinterpret_cast<uint64_t>(function),
                             grid_x, grid_y, grid_z, block_x, block_y),
             g_launches);
  const int status = enter_launch(LAUNCH_ARGUMENTS);
  g_totals.calls += 1;
  g_totals.errors += status != 0;
  g_totals.total_ns += end_call(status, g_launches);
  g_totals.min_ns = ~g_launches.counts.inverted_min_ns;
  g_totals.max_ns = g_launches.counts.max_ns;
  return status;
}

int hooked_graph_launch(void* exec, void* stream) {
  if (!hooks_count()) return cuGraphLaunch(exec, stream);
  g_behind_graph_launch = find_behind_entry("cuGraphLaunch");
  begin_call(MAKE_NOTED_CALL(GPUPERF_HOOK_cuGraphLaunch, reinterpret_cast<uint64_t>(exec),
                             reinterpret_cast<uint64_t>(stream)),
             g_graph_launches);
  const int status = enter_graph_launch(exec, stream);
  (void)end_call(status, g_graph_launches);
  return status;
}

hooked_totals get_hooked_totals() { return g_totals; }

void set_noted_slow_ns(uint64_t noted_slow_ns) { g_noted_slow_ns = noted_slow_ns; }

void flush_hooked_calls() {
  flush(g_launches);
  flush(g_graph_launches);
}

void read_semaphores(unsigned values[7]) {
  values[0] = gpuperf_hook_flags.count_semaphore;
  values[1] = gpuperf_injector_calls_semaphore;
  values[2] = gpuperf_injector_slow_semaphore;
  values[3] = gpuperf_injector_launch_semaphore;
  values[4] = gpuperf_injector_thread_semaphore;
  values[5] = gpuperf_hook_flags.launches_semaphore;
  values[6] = gpuperf_hook_flags.each_semaphore;
}
}
