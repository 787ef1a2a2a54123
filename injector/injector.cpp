#include "injector/injector.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "injector/clocks.h"
#include "injector/graph_hooks.h"
#include "injector/launch_hooks.h"

namespace gpuperf::injector {
namespace {

// How long process exit waits for what is still in CUPTI's buffers.
constexpr int kLastWordsMs = 200;
constexpr uint64_t kStatusMs = 1'000;
constexpr uint32_t kFlushMsDefault = 250;
constexpr uint64_t kAbandonMsDefault = 30'000;
constexpr uint64_t kWatchMs = 1'000;
// Interval at which the launch hooks' counts are sent.
constexpr uint64_t kCountsMs = 100;

alignas(Injector) unsigned char g_storage[sizeof(Injector)];
std::atomic<bool> g_is_claimed = false;

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
    self.is_progress_wanted = (control.enabled_kinds & GPUPERF_SESSION_PROGRESS) != 0;
    set_progress(self.is_progress_wanted);
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
  self.is_progress_wanted = false;
  set_progress(false);
  if (self.apart_since_ms == 0) self.apart_since_ms = now_ms;
  const uint32_t abandon_ms = self.link.control().abandon_ms;
  if (now_ms - self.apart_since_ms > (abandon_ms == 0 ? kAbandonMsDefault : abandon_ms)) {
    self.collector.leave(now_ms);
  }
}

// Registered from within cuInit, so it runs before the exit handlers of the driver and the
// libraries: CUDA still works. Gives the thread a moment to hand over the last records.
void on_exit() {
  Injector& self = *g_injector;
  if (self.is_ending.exchange(true)) return;
  wake_injector();
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

}  // namespace

Injector* g_injector = nullptr;

bool claim_process() { return !g_is_claimed.exchange(true); }

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

bool follow_process() {
  return pthread_atfork(nullptr, nullptr, on_fork_in_child) == 0 && std::atexit(on_exit) == 0;
}

void send_status(Injector& self, uint64_t now_ms) {
  gpuperf_status status = {};
  status.header.kind = GPUPERF_MESSAGE_STATUS;
  status.header.length_bytes = sizeof(status);
  self.collector.fill_status(status);
  if (self.is_progress_wanted) status.hooked_calls = get_progress();
  const HookTimes times = get_hook_times();
  status.timed_hooks = times.calls;
  status.timed_hooks_ns = times.ns;
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

void wake_injector() {
  const uint64_t one = 1;
  (void)!write(g_injector->wake_fd, &one, sizeof(one));
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

}  // namespace gpuperf::injector
