// The way into a process that runs already (attach_abi.h), on a thread that was started for it, and
// out of it at detach. Nothing here throws, prints, exits or waits for the daemon.

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "injector/clocks.h"
#include "injector/foreign_clients.h"
#include "injector/injector.h"
#include "injector/launch_hooks.h"
#include "injector/yield.h"

namespace gpuperf::injector {
namespace {

// How long detaching waits for a launch to end CUPTI, and for calls to leave their hooks.
constexpr uint64_t kRetireMs = 2'000;
constexpr uint64_t kCallsEndMs = 500;
// Interval at which a process that was attached to looks whether it is to be detached.
constexpr int kDetachLookMs = 100;

void set_attach_state(gpuperf_attach_block& block, gpuperf_attach_state state) {
  __atomic_store_n(&block.state, static_cast<uint32_t>(state), __ATOMIC_RELEASE);
}

void close_descriptor(int32_t& fd) {
  if (fd >= 0) (void)close(fd);
  fd = -1;
}

void fail_to_attach(gpuperf_attach_block& block, const char* why) {
  std::snprintf(block.text, sizeof(block.text), "%s", why);
  close_descriptor(block.socket_fd);
  close_descriptor(block.daemon_fd);
  set_attach_state(block, GPUPERF_ATTACH_FAILED);
}

// What the library does in every process once, and here late: graphs may be there, and other
// threads launch meanwhile. Null: done; else why not.
const char* begin_first_time(gpuperf_attach_block& block) {
  if (!make_injector()) return "no descriptors are left in the process";
  Injector& self = *g_injector;
  const bool wants_hooks = (block.flags & GPUPERF_ATTACH_NO_HOOKS) == 0;
  const bool has_hooks =
      wants_hooks && find_nsight() == nullptr && install_launch_hooks(wake_injector);
  self.collector.set_attached(has_hooks);
  self.collector.watch_clients();
  return follow_process() ? nullptr : "no memory is left in the process";
}

// Leaves the process as it was, as far as possible. Calls on other threads may be anywhere in our
// code, and pointers to it on the heap: both lead on to the driver for ever. `block` says what
// stays.
void leave_process(Injector& self, gpuperf_attach_block& block) {
  const uint64_t start_ms = read_mono_ms();
  const char* fate = "";
  for (bool is_done = false; !is_done;) {
    const uint64_t now_ms = read_mono_ms();
    if (self.is_ending.load()) return;  // the process exits
    self.collector.tend(true, now_ms);
    is_done = self.collector.retire(now_ms - start_ms >= kRetireMs, now_ms, fate);
    self.batch.send(now_ms);
    self.link.send_queued(now_ms);
    if (!is_done) wait_for_work(self, 20);
  }
  const bool are_calls_over = remove_launch_hooks(kCallsEndMs);
  stand_aside();
  send_kept_launches();
  send_launch_counts();
  const uint64_t now_ms = read_mono_ms();
  if (self.link.state() == DaemonLink::State::kTogether) send_status(self, now_ms);
  self.link.send_queued(now_ms);
  std::snprintf(block.text, sizeof(block.text), "%s%s", fate,
                are_calls_over ? "" : "; calls that had begun are not counted");
  block.kept_kib = get_launch_memory_kib();
  block.kept_fds = 2;
  // The library stays loaded by the file, not by its descriptor.
  close_descriptor(block.library_fd);
  close_descriptor(block.block_fd);
  self.link.leave_block(now_ms);
}

// Runs until the process is to be detached, or ends.
void run_attached(gpuperf_attach_block& block) {
  Injector& self = *g_injector;
  while (!self.is_ending.load()) {
    if (__atomic_load_n(&block.detach, __ATOMIC_ACQUIRE) != 0) break;
    work_once(self);
    const int patience_ms = get_patience_ms(self);
    wait_for_work(self, patience_ms < kDetachLookMs ? patience_ms : kDetachLookMs);
  }
  if (!self.is_ending.load()) leave_process(self, block);
  // An exiting process waits for this thread's last words.
  if (self.is_ending.exchange(true)) return finish(self);
  self.block.store(nullptr);
  set_attach_state(block, GPUPERF_ATTACH_DETACHED);
}

void attach(gpuperf_attach_block& block) {
  (void)prctl(PR_SET_NAME, "gpuperf");
  const bool is_first = g_injector == nullptr;
  if (is_first && !claim_process()) {
    return fail_to_attach(block, "the library is in the process already, by CUDA_INJECTION64_PATH");
  }
  Injector* const self = g_injector;
  if (!is_first && (!self->is_ending.load() || self->block.load() != nullptr)) {
    return fail_to_attach(block, "the library is in use in the process already");
  }
  if (is_first) {
    if (const char* why = begin_first_time(block)) return fail_to_attach(block, why);
  } else {
    self->collector.revive();
    if ((block.flags & GPUPERF_ATTACH_NO_HOOKS) == 0 && find_nsight() == nullptr) {
      (void)install_launch_hooks(wake_injector);
    }
    self->collector.watch_clients();
    self->is_ending.store(false);
  }
  block.pid = static_cast<uint32_t>(getpid());
  ++block.cycles;
  g_injector->apart_since_ms = 0;
  g_injector->link.set_up_attached(&block);
  g_injector->block.store(&block);
  set_attach_state(block, GPUPERF_ATTACH_ATTACHED);
  run_attached(block);
}

}  // namespace
}  // namespace gpuperf::injector

// What a thread runs that was started for this: called by the attach stub or, where the library is
// loaded from before, where the thread begins. Returns when the library is detached. `argument`:
// the block of attach_abi.h.
extern "C" __attribute__((visibility("default"))) void* gpuperf_attach(void* argument) {
  uint64_t all = UINT64_MAX;
  (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof(all));
  (void)pthread_detach(pthread_self());
  auto& block = *static_cast<gpuperf_attach_block*>(argument);
  block.thread = static_cast<__u32>(syscall(SYS_gettid));
  gpuperf::injector::attach(block);
  return nullptr;
}
