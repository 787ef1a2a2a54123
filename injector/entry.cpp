// The entry point that the CUDA driver calls, and the thread that does everything else.
//
// The driver loads the library named by CUDA_INJECTION64_PATH and calls InitializeInjection from
// within cuInit, on a workload thread. There we ask the daemon, for a few milliseconds at most and
// only if one listens. Everything else happens on one thread of our own, with every signal blocked.
// Nothing here throws, prints, exits or waits for the daemon.
//
// A process that is attached to while it runs (attach_abi.h) enters by gpuperf_attach instead, on a
// thread that was started for it, and leaves it again at detach.

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "injector/attach_abi.h"
#include "injector/batch.h"
#include "injector/buffers.h"
#include "injector/clocks.h"
#include "injector/collector.h"
#include "injector/daemon_link.h"
#include "injector/graph_hooks.h"
#include "injector/launch_hooks.h"
#include "injector/yield.h"

namespace gpuperf::injector {
namespace {

constexpr const char* kSocketPath = "/run/gpuperf/ingest.sock";
// How long to wait for the daemon's answer within cuInit, which itself takes hundreds of
// milliseconds. Individual API calls, and graphs where there are no hooks, can be recorded only if
// switched on there (see ActiveKinds). A stopped daemon costs this once.
constexpr uint64_t kAnswerInInitMs = 20;
// By then, a process has created the CUDA graphs that it creates at startup.
constexpr uint64_t kYoungMs = 120'000;
// How long process exit waits for what is still in CUPTI's buffers.
constexpr int kLastWordsMs = 200;
// CUPTI calls run on this stack.
constexpr size_t kStackBytes = 1 << 20;
constexpr uint64_t kStatusMs = 1'000;
constexpr uint32_t kFlushMsDefault = 250;
constexpr uint64_t kAbandonMsDefault = 30'000;
constexpr uint64_t kWatchMs = 1'000;
// How long detaching waits for a launch to end CUPTI, and for calls to leave their hooks.
constexpr uint64_t kRetireMs = 2'000;
constexpr uint64_t kCallsEndMs = 500;
// Interval at which a process that was attached to looks whether it is to be detached.
constexpr int kDetachLookMs = 100;
// Interval at which the launch hooks' counts are sent.
constexpr uint64_t kCountsMs = 100;

struct Injector {
  Buffers buffers;
  DaemonLink link;
  Batch batch{link};
  Collector collector{buffers, batch};
  int wake_fd = -1;
  int gone_fd = -1;  // signalled when the final flush is done
  std::atomic<bool> is_ending = false;
  uint64_t apart_since_ms = 0;
  uint64_t next_flush_ms = 0;
  uint64_t next_status_ms = 0;
  uint64_t next_watch_ms = 0;
  uint64_t next_counts_ms = 0;
  uint32_t last_state = 0;
  uint32_t last_level = 0;
  std::atomic<gpuperf_attach_block*> block = nullptr;  // of a process that was attached to
};

// Never destroyed: CUPTI may call back until the process exits.
alignas(Injector) unsigned char g_storage[sizeof(Injector)];
Injector* g_injector = nullptr;

void send_status(Injector& self, uint64_t now_ms) {
  gpuperf_status status = {};
  status.header.kind = GPUPERF_MESSAGE_STATUS;
  status.header.length_bytes = sizeof(status);
  self.collector.fill_status(status);
  status.mono_ns = read_mono_ns();
  status.unix_ns = read_unix_ns();
  status.records_sent = self.batch.sent_records();
  status.losses[GPUPERF_SESSION_LOSS_QUEUE_FULL] += self.batch.refused_records();
  status.injector_cpu_ns = read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  self.last_state = status.state;
  self.last_level = status.level;
  self.next_status_ms = now_ms + kStatusMs;
  (void)self.link.send(&status.header, now_ms);  // counts are cumulative: the next one has them all
}

uint32_t flush_interval_ms(const Injector& self) {
  const uint32_t asked_ms = self.link.control().flush_interval_ms;
  return asked_ms < 10 ? kFlushMsDefault : asked_ms;
}

// Reads from the daemon, and notices when it no longer takes anything.
void talk(Injector& self, uint64_t now_ms) {
  if (self.link.state() == DaemonLink::State::kApart) {
    if (!self.link.try_connect(now_ms)) return;
    // Before the daemon's answer, which may be there at once: everything is announced again to each
    // connection.
    self.collector.set_connected(false, now_ms);
  }
  const bool was_together = self.link.state() == DaemonLink::State::kTogether;
  if (self.link.receive(now_ms)) {
    const gpuperf_control& control = self.link.control();
    self.batch.set_limit(control.batch_bytes_max);
    if (!was_together) self.collector.set_connected(true, now_ms);
    self.collector.order(control, now_ms);
    self.next_status_ms = now_ms;
  }
  if (self.link.state() != DaemonLink::State::kTogether) return;
  self.apart_since_ms = 0;
  self.link.send_queued(now_ms);
  const uint32_t abandon_ms = self.link.control().abandon_ms;
  const uint64_t patience_ms = abandon_ms == 0 ? kAbandonMsDefault : abandon_ms;
  const bool is_deaf = self.link.has_queued() && now_ms - self.link.last_taken_ms() > patience_ms;
  // If it never receives a name, everything after it is unreadable.
  if (is_deaf || self.batch.has_lost_entries()) self.link.disconnect(now_ms);
}

void notice_absence(Injector& self, uint64_t now_ms) {
  if (self.link.state() == DaemonLink::State::kTogether) return;
  self.collector.set_connected(false, now_ms);
  if (self.apart_since_ms == 0) self.apart_since_ms = now_ms;
  const uint32_t abandon_ms = self.link.control().abandon_ms;
  if (now_ms - self.apart_since_ms > (abandon_ms == 0 ? kAbandonMsDefault : abandon_ms)) {
    self.collector.leave(now_ms);
  }
}

void work_once(Injector& self) {
  const uint64_t now_ms = read_mono_ms();
  talk(self, now_ms);
  notice_absence(self, now_ms);
  if (now_ms >= self.next_watch_ms) {
    self.next_watch_ms = now_ms + kWatchMs;
    self.collector.watch_clients();
  }
  const bool is_due = now_ms >= self.next_flush_ms;
  if (is_due) self.next_flush_ms = now_ms + flush_interval_ms(self);
  self.collector.tend(is_due, now_ms);
  self.batch.send(now_ms);
  send_kept_launches();
  if (now_ms >= self.next_counts_ms) {
    self.next_counts_ms = now_ms + kCountsMs;
    send_launch_counts();
  }
  if (self.link.state() == DaemonLink::State::kTogether && now_ms >= self.next_status_ms) {
    send_status(self, now_ms);
  }
}

int get_patience_ms(const Injector& self) {
  const uint64_t now_ms = read_mono_ms();
  uint64_t until_ms = self.next_watch_ms;
  if (self.collector.is_collecting() && self.next_flush_ms < until_ms)
    until_ms = self.next_flush_ms;
  if (self.link.state() == DaemonLink::State::kApart && !self.collector.is_collecting()) {
    // Not connected and nothing to do.
    until_ms =
        self.link.next_try_ms() < now_ms + kWatchMs ? self.link.next_try_ms() : now_ms + kWatchMs;
  }
  if (are_launches_counted() && self.next_counts_ms < until_ms) until_ms = self.next_counts_ms;
  return until_ms <= now_ms ? 1 : static_cast<int>(until_ms - now_ms);
}

void wake(Injector& self) {
  const uint64_t one = 1;
  (void)!write(self.wake_fd, &one, sizeof(one));
}

void wait_for_work(Injector& self, int patience_ms) {
  pollfd waits[] = {
      {self.wake_fd, POLLIN, 0},
      {self.link.fd(), static_cast<short>(self.link.has_queued() ? POLLIN | POLLOUT : POLLIN), 0}};
  (void)poll(waits, self.link.fd() >= 0 ? 2 : 1, patience_ms);
  uint64_t count = 0;
  (void)!read(self.wake_fd, &count, sizeof(count));
}

void finish(Injector& self) {
  const uint64_t now_ms = read_mono_ms();
  self.collector.finish(now_ms);
  self.batch.send(now_ms);
  send_kept_launches();
  send_launch_counts();
  if (self.link.state() == DaemonLink::State::kTogether) send_status(self, now_ms);
  self.link.send_queued(now_ms);
  self.link.disconnect(now_ms);
  const uint64_t one = 1;
  (void)!write(self.gone_fd, &one, sizeof(one));
}

void* run(void* argument) {
  auto& self = *static_cast<Injector*>(argument);
  (void)prctl(PR_SET_NAME, "gpuperf");
  while (!self.is_ending.load()) {
    work_once(self);
    wait_for_work(self, get_patience_ms(self));
  }
  finish(self);
  return nullptr;
}

// Registered from within cuInit, so it runs before the exit handlers of the driver and the
// libraries: CUDA still works. Gives the thread a moment to hand over the last records.
void on_exit() {
  Injector& self = *g_injector;
  if (self.is_ending.exchange(true)) return;
  wake(self);
  pollfd wait = {self.gone_fd, POLLIN, 0};
  (void)poll(&wait, 1, kLastWordsMs);
  self.collector.after_fork_in_child();  // no more collection here either
}

void on_fork_in_child() {
  stop_counting_launches();
  g_injector->collector.after_fork_in_child();
  g_injector->is_ending.store(true);
  g_injector->block.store(nullptr);  // the parent's
  g_injector->link.abandon_after_fork();
}

bool start_thread(Injector& self) {
  // Blocks every signal in the new thread, so that none of the workload's is delivered to it.
  uint64_t all = UINT64_MAX, before = 0;
  if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(all)) != 0) return false;
  pthread_attr_t attributes;
  (void)pthread_attr_init(&attributes);
  (void)pthread_attr_setstacksize(&attributes, kStackBytes);
  (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool is_started = pthread_create(&thread, &attributes, run, &self) == 0;
  (void)pthread_attr_destroy(&attributes);
  (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof(before));
  return is_started;
}

// Asks the daemon, if there is one, and carries out its order at once: nothing is missed, and
// individual calls can be switched on.
void ask_in_initialisation(Injector& self, uint64_t patience_ms) {
  const uint64_t start_ms = read_mono_ms();
  if (!self.link.try_connect(start_ms)) return;
  uint64_t now_ms = start_ms;
  while (self.link.state() == DaemonLink::State::kWaiting && now_ms - start_ms < patience_ms) {
    pollfd wait = {self.link.fd(), POLLIN, 0};
    (void)poll(&wait, 1, static_cast<int>(patience_ms - (now_ms - start_ms)));
    now_ms = read_mono_ms();
    if (!self.link.receive(now_ms)) continue;
    self.batch.set_limit(self.link.control().batch_bytes_max);
    self.collector.start_in_initialisation(self.link.control(), now_ms);
  }
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] != '\0' && std::strcmp(value, "0") != 0;
}

bool is_off(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::strcmp(value, "0") == 0;
}

uint64_t read_ms(const char* name, uint64_t otherwise_ms) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] != '\0' ? std::strtoull(value, nullptr, 10) : otherwise_ms;
}

// The state of the library, and what it needs of the system.
bool make_injector() {
  g_injector = new (g_storage) Injector;
  Injector& self = *g_injector;
  g_buffers = &self.buffers;
  g_collector = &self.collector;
  self.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  self.gone_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (self.wake_fd < 0 || self.gone_fd < 0) return false;
  self.buffers.set_wake_fd(self.wake_fd);
  set_graph_watcher([](bool begins) { g_injector->collector.on_graph(begins); });
  return true;
}

void initialise() {
  const char* path = std::getenv("GPUPERF_SOCKET");
  if (!make_injector()) return;
  Injector& self = *g_injector;
  self.link.set_up(path != nullptr && path[0] != '\0' ? path : kSocketPath);
  if (!is_off("GPUPERF_LAUNCH_HOOKS") && find_nsight() == nullptr &&
      install_launch_hooks([] { wake(*g_injector); })) {
    self.collector.trust_graph_hooks();
  }
  if (is_set("GPUPERF_NODE_BURSTS")) self.collector.allow_nodes();
  if (is_set("GPUPERF_END_AMONG_THREADS")) self.collector.end_among_threads();
  self.collector.set_young(read_ms("GPUPERF_SETTLE_MS", kYoungMs));
  self.collector.watch_clients();
  ask_in_initialisation(self, read_ms("GPUPERF_INIT_WAIT_MS", kAnswerInInitMs));
  if (pthread_atfork(nullptr, nullptr, on_fork_in_child) != 0) return;
  if (std::atexit(on_exit) != 0) return;
  if (!start_thread(self)) self.is_ending.store(true);
}

// --- attached while the process runs

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

void wake_injector() { wake(*g_injector); }

// What the library does in every process once, and here late: graphs may be there, and other
// threads launch meanwhile. Null: done; else why not.
const char* begin_first_time(gpuperf_attach_block& block) {
  if (!make_injector()) return "no descriptors are left in the process";
  Injector& self = *g_injector;
  const bool wants_hooks = (block.flags & GPUPERF_ATTACH_NO_HOOKS) == 0;
  const bool has_hooks =
      wants_hooks && find_nsight() == nullptr && install_launch_hooks(wake_injector);
  self.collector.set_attached(has_hooks);
  if ((block.flags & GPUPERF_ATTACH_END_AMONG_THREADS) != 0) self.collector.end_among_threads();
  self.collector.watch_clients();
  if (pthread_atfork(nullptr, nullptr, on_fork_in_child) != 0 || std::atexit(on_exit) != 0) {
    return "no memory is left in the process";
  }
  return nullptr;
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

// Whether the driver has begun InitializeInjection.
std::atomic<bool> g_is_initialised = false;

void attach(gpuperf_attach_block& block) {
  (void)prctl(PR_SET_NAME, "gpuperf");
  const bool is_first = g_injector == nullptr;
  // One way into a process only; g_is_initialised stays set from the first one on.
  if (is_first && g_is_initialised.exchange(true)) {
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
  gpuperf::injector::attach(*static_cast<gpuperf_attach_block*>(argument));
  return nullptr;
}

// Called by the CUDA driver, once; 1 = done. The name is NVIDIA's.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using gpuperf::injector::g_is_initialised;
  if (g_is_initialised.exchange(true) || gpuperf::injector::is_set("GPUPERF_DISABLE")) return 1;
  gpuperf::injector::initialise();
  return 1;
}
