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
  uint32_t entry;
  gpuperf_noted_calls noted;
  uint32_t buckets[GPUPERF_BUCKETS];
};

Hook g_launches{.entry = GPUPERF_HOOK_cuLaunchKernel, .noted = {}, .buckets = {}};
Hook g_graph_launches{.entry = GPUPERF_HOOK_cuGraphLaunch, .noted = {}, .buckets = {}};
hooked_totals g_totals;
gpuperf_hooked_thread g_thread;
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

void add_error(gpuperf_noted_calls& noted, int status) {
  const uint64_t tag = 1ull << 32 | static_cast<uint32_t>(status);
  for (gpuperf_error_count& slot : noted.errors) {
    if (slot.status_tag != 0 && slot.status_tag != tag) continue;
    slot.status_tag = tag;
    slot.count += 1;
    return;
  }
  noted.other_errors += 1;
}

void begin_call(const gpuperf_noted_call& noted, Hook& hook) {
  gpuperf_noted_call& call = g_thread.call;
  g_thread.start_mono_ns = 0;  // of a call that was left by longjmp
  std::atomic_signal_fence(std::memory_order_seq_cst);
  call = noted;
  if (!g_is_thread_noted) {
    note_thread({.hooked_address = reinterpret_cast<uint64_t>(&g_thread)});
    g_is_thread_noted = true;
  }
  if (launches_wanted()) note_launch(call);
  hook.noted.calls += 1;
  call.start_mono_ns = now_ns();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  g_thread.start_mono_ns = call.start_mono_ns;
}

// How long it took.
uint64_t end_call(int status, Hook& hook) {
  gpuperf_noted_call& call = g_thread.call;
  const uint64_t ns = now_ns() - call.start_mono_ns;
  g_thread.total_ns += ns;
  hook.buckets[bucket_of(ns)] += 1;
  gpuperf_noted_calls& noted = hook.noted;
  noted.total_ns += ns;
  noted.self_ns += ns;
  if (ns > noted.max_ns) noted.max_ns = ns;
  if (~ns > noted.inverted_min_ns) noted.inverted_min_ns = ~ns;
  if (status != 0) add_error(noted, status);
  call.duration_ns = ns;
  call.return_value = static_cast<uint64_t>(status);
  if (ns >= g_noted_slow_ns) note_slow(call);
  g_thread.start_mono_ns = 0;
  return ns;
}

// In as many notes as its buckets need.
void flush(Hook& hook) {
  gpuperf_noted_calls note = hook.noted;
  note.entry = hook.entry;
  note.bucket_count = 0;
  note.total_ns = note.self_ns = 0;
  for (uint32_t bucket = 0; bucket < GPUPERF_BUCKETS; ++bucket) {
    if (hook.buckets[bucket] == 0) continue;
    if (note.bucket_count == GPUPERF_NOTED_BUCKETS) {
      note_calls(note);
      note = {};
      note.entry = hook.entry;
    }
    note.buckets[note.bucket_count++] = {bucket, hook.buckets[bucket]};
    hook.buckets[bucket] = 0;
  }
  note.inverted_min_ns = hook.noted.inverted_min_ns;
  note.max_ns = hook.noted.max_ns;
  note.total_ns = hook.noted.total_ns;
  note.self_ns = hook.noted.self_ns;
  note_calls(note);
  hook.noted = {};
  hook.noted.inverted_min_ns = note.inverted_min_ns;
  hook.noted.max_ns = note.max_ns;
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
  g_totals.min_ns = ~g_launches.noted.inverted_min_ns;
  g_totals.max_ns = g_launches.noted.max_ns;
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
  if (!hooks_count()) return;
  flush(g_launches);
  flush(g_graph_launches);
}

void read_semaphores(unsigned values[6]) {
  values[0] = gpuperf_hook_flags.calls_semaphore;
  values[1] = gpuperf_injector_slow_semaphore;
  values[2] = gpuperf_injector_launch_semaphore;
  values[3] = gpuperf_injector_thread_semaphore;
  values[4] = gpuperf_injector_launches_semaphore;
  values[5] = gpuperf_injector_each_semaphore;
}
}
