#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/base/fd.h"
#include "daemon/base/process_users.h"
#include "daemon/base/result.h"
#include "daemon/collect/map_source.h"
#include "daemon/collect/ring_reader.h"
#include "daemon/collect/slow_shares.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"

namespace gpuperf {

// The drain thread: empties the BPF rings, reads the totals every `interval` and when the kernel
// side asks for it, decodes, and hands batches of events to the loop.
//
// Owns its thread, between start and stop. `programs`' descriptors behind the rings must outlive
// it. Calls in flight are looked at every second, less often where a look takes long. Of a burst of
// slow calls as many as the loop can name are handed on, of each user and process his share
// (SlowShares); the rest count kSlowThinned. When the loop
// is behind (its queue full), the batch waits and nothing further is taken from
// the kernel: totals stay there, and a ring that fills counts its losses itself.
class Drain {
 public:
  using Batch = std::vector<Event>;
  struct Setup {
    int slow_ring_fd = -1;
    int process_ring_fd = -1;
    int name_ring_fd = -1;
    int stack_ring_fd = -1;
    int stack_copy_ring_fd = -1;
    int trace_ring_fd = -1;
    int report_ring_fd = -1;
    std::chrono::milliseconds interval{1000};
    std::function<Result<InFlightCalls>()> read_in_flight;
    std::function<Result<SlowInFlightCalls>()> read_slow_in_flight;
    std::function<Result<ThreadCosts>()> read_thread_costs;  // mono_ns is set here
    std::function<void()> on_batch;  // called on the drain thread after each batch is queued
  };
  static constexpr size_t kQueueBatches = 64;

  static Result<std::unique_ptr<Drain>> make(Setup setup, MapSource totals, DropCounters& drops);
  ~Drain();

  void start();
  // Reads everything once more and ends the thread. Nothing is lost: that last batch is queued even
  // where the queue is full.
  void stop();
  std::optional<Batch> try_pop() { return queue_.try_pop(); }     // any thread
  size_t take_highest_queued() { return queue_.take_highest(); }  // any thread

 private:
  Drain(Setup setup, MapSource totals, DropCounters& drops);
  void run();
  void read_totals(bool is_early);
  std::vector<BoundLevel> list_levels();
  void look_at_threads();
  bool flush();
  Status add_ring(int ring_fd, const char* name);
  Status watch(int fd);
  void consume_rings();
  void on_record(std::span<const std::byte> record);
  // One for each kind of DecodedRecord.
  void take_record(SlowCallEvent& call);
  void take_record(RawStack& stack);
  void take_record(ProcessExited& exited) { totals_.note_exit(exited.process); }
  void take_record(HandleNamed& named) { batch_.emplace_back(std::move(named)); }
  void take_record(ChildStarted& child) { batch_.emplace_back(child); }
  void take_record(TraceLaunch& launch) { trace_.launches.push_back(launch); }
  void take_record(std::vector<TraceLaunch>& launches) {
    trace_.launches.insert(trace_.launches.end(), launches.begin(), launches.end());
  }
  void take_record(TraceCall& call) { trace_.calls.push_back(call); }
  void take_record(TraceSite& site) { trace_.sites.push_back(std::move(site)); }
  void take_record(TraceThreadTime& time) { trace_.thread_times.push_back(time); }
  void take_record(TraceGraphCall& call) { trace_.graph_calls.push_back(call); }
  void take_record(ReportedCall& call) { reported_.calls.push_back(call); }
  void take_record(ResponsePart& part);
  void take_record(CallsAlarm&) { has_alarm_ = true; }

  const Setup setup_;
  DropCounters& drops_;
  BoundedQueue<Batch> queue_{kQueueBatches};
  std::atomic<bool> stopping_ = false;
  Fd epoll_;
  Fd wake_;
  // Drain thread only.
  MapSource totals_;
  RingReader rings_;
  Batch batch_;
  TraceBatch trace_;
  ReportedCalls reported_;
  std::chrono::steady_clock::time_point next_look_;
  bool has_alarm_ = false;     // since the last reading of the totals
  bool look_failed_ = false;   // said once
  bool rings_failed_ = false;  // likewise
  ProcessUsers users_;
  SlowShares slow_shares_;
  std::thread thread_;
};

}  // namespace gpuperf
