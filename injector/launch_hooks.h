#pragma once

// Every call that gives a GPU work (kernels, graphs, copies, memsets: GPUPERF_HOOK_ENTRIES) goes
// through our code (hook_code.h). Only data is changed for this: slots that hold addresses of
// driver functions, the driver's symbol table, and what cuGetProcAddress returns. While a daemon
// listens (the semaphore of bpf/hook_notes.h) the hook counts the call and bypasses the daemon's
// breakpoint, so the call costs no trap. Otherwise the call continues unchanged, within a
// nanosecond. A pointer copied to where it is not found still leads to the driver, and the daemon's
// probe counts the call.
//
// The hooks stay for the life of the process, or until the library is detached; even then a copied
// slot may be called at any time, and leads through an idle hook to the driver. A driver
// function is left as it is if it does not begin as in all known drivers, or if somebody else has
// patched it.

#include "injector/call_log.h"
#include "injector/note_points.h"

namespace gpuperf::injector {

// Call within cuInit, so that copies of the addresses made later are already ours; in a process
// that is attached to, on the injector's thread, also again after remove_launch_hooks(). Also
// installs the hooks on functions that create graphs (graph_hooks.h). False: no driver here can be
// hooked. `wake` makes the injector's thread call are_launches_counted() soon.
bool install_launch_hooks(void (*wake)());
// Whether a daemon wants the counts and there may be some; the caller then sends them within 100
// ms.
bool are_launches_counted();
// Sends what was counted since the last call; also after counting has stopped, for calls that were
// in flight then. Thread: injector's.
void send_launch_counts(void (*note)(const gpuperf_noted_calls&) = note_calls);
// Reports the launches kept for reporting together. Thread: injector's.
void send_kept_launches();
// Makes threads that launch kernels or graphs call `attend` in their hook, before the call enters
// the driver, whether or not a daemon counts. Null stops this; a thread that was already asked may
// still call it. Thread: any, one at a time.
using Attend = void (*)(bool launches_graph);
void set_attention(Attend attend);
// Waits until no hooked call is in the driver, for at most `patience_ms`, and makes new ones wait
// for release_launches(), for at most `held_ms_max`; then they go on. False: this failed and none
// waits; try again later. Thread: any, one at a time (finalizer.h).
bool hold_launches(uint64_t patience_ms = 100, uint64_t held_ms_max = 40);
// False: a call went on before this.
bool release_launches();
// Follows launches that no hook counts, so that they can be held, too. Once followed for some time,
// all are: one that began before has ended.
void watch_launches(bool is_on);
// Whether they are followed, or counted.
bool are_launches_followed();
// Whether calls can be logged with their streams. Call after install_launch_hooks.
bool can_log_calls();
// Logs calls that begin from now on, with stream numbers from `ask`; null stops it. Nothing is
// logged while no calls are counted.
void set_call_log(AskStream ask);
bool is_call_log_on();
// The clock of logged calls: CLOCK_MONOTONIC, as accurate as cycle_clock.h says. Thread: any.
uint64_t read_call_clock_ns();
// Logs a wait that ends now. Thread: the one that waited.
void log_wait(uint16_t entry, uint64_t start_mono_ns, uint32_t result);
// Passes on the logged calls, each thread's oldest first. Returns how many were lost since the
// process began. Thread: injector's.
using TakeCall = void (*)(void* data, const LoggedCall& call);
uint64_t take_logged_calls(TakeCall take, void* data);
// Increases when hooked calls were counted.
uint64_t get_noted_calls();
// Whether calls that are not counted otherwise are counted as such: for get_progress(). Thread:
// injector's, as for that.
void set_progress(bool is_on);
// Hooked calls of all threads since the process began, those included that were made while nothing
// else was counted but progress was on.
uint64_t get_progress();
// Of calls whose hook was timed since the process began, some ten a second: how many there were,
// and what their hooks took of the threads' time, without the driver's function and without the
// stub, which is a few nanoseconds.
struct HookTimes {
  uint64_t calls = 0;
  uint64_t ns = 0;
};
HookTimes get_hook_times();
// What the counts of all threads take, which stay where they are.
uint32_t get_launch_memory_kib();
// For a forked child: nobody sends what its hooks would count.
void stop_counting_launches();
// At detach: puts the driver's functions back, and waits up to `patience_ms` until no call is in a
// hook that counts it. False: some still are; what they count stays unsent. Thread: injector's.
bool remove_launch_hooks(uint64_t patience_ms);

}  // namespace gpuperf::injector
