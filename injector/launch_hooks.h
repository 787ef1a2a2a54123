#pragma once

// Every call that gives a GPU work (kernels, graphs, copies, memsets: GPUPERF_HOOK_ENTRIES) passes
// through code of ours (hook_code.h), by data alone: slots that hold the addresses of the driver's
// functions, the driver's symbol table and what cuGetProcAddress answers lead to it. While a daemon
// listens (the semaphore of bpf/hook_notes.h) the call is counted here and goes past the daemon's
// breakpoint, so that it costs no trap; else it goes on as it came, in a nanosecond. A pointer that
// was copied where it is not found leads to the driver as before, and the daemon's probe counts the
// call.
//
// It stays so for the life of the process: a slot that somebody copied may be called at any time.
// A function of the driver that does not begin as those of all known drivers do, or was changed by
// somebody else's patch, is left as it is.

#include "injector/call_log.h"
#include "injector/note_points.h"

namespace gpuperf::injector {

// Once, within cuInit: copies of the addresses that are made later are ours already. The hooks on
// what makes graphs (graph_hooks.h) come with it. False: there is no driver here that can be
// hooked.
// `wake` has the injector's thread ask are_launches_counted() soon.
bool install_launch_hooks(void (*wake)());
// Whether a daemon wants the counts, and there may be some; who asks sends them within 100 ms then.
bool are_launches_counted();
// Sends what was counted since the last time; also when nothing is counted any more, for calls that
// were in flight then. Injector's thread.
void send_launch_counts(void (*note)(const gpuperf_noted_calls&) = note_calls);
// Reports the launches that were kept to be reported together. Injector's thread.
void send_kept_launches();
// Asks threads that launch kernels or graphs for attention: each calls `attend` within its hook,
// before its call enters the driver, whether a daemon counts or not. Null = no longer; a thread
// that was asked already may still come. Thread: any, one at a time.
using Attend = void (*)(bool launches_graph);
void set_attention(Attend attend);
// Waits until no hooked call is in the driver, and has those that begin wait for
// release_launches(): 40 ms at most, then they go on. False: it could not be had, and none waits;
// ask again later. Injector's thread.
bool hold_launches();
// False: one went on before.
bool release_launches();
// Whether calls can be logged with their streams. After install_launch_hooks.
bool can_log_calls();
// Calls that begin from now on are logged, with the streams' numbers from `ask`; null = no longer.
// Nothing is logged while none are counted.
void set_call_log(AskStream ask);
bool is_call_log_on();
// The clock of what is logged: CLOCK_MONOTONIC, as exact as cycle_clock.h says. Any thread.
uint64_t read_call_clock_ns();
// Logs a wait that ends now. The thread that waited.
void log_wait(uint16_t entry, uint64_t start_mono_ns, uint32_t result);
// Gives the calls that were logged, each thread's oldest first; returns how many were lost since
// the process began. Injector's thread.
using TakeCall = void (*)(void* data, const LoggedCall& call);
uint64_t take_logged_calls(TakeCall take, void* data);
// Grows when hooked calls were counted.
uint64_t get_noted_calls();
// A forked child: nobody sends what its hooks would count.
void stop_counting_launches();

}  // namespace gpuperf::injector
