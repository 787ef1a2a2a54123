#pragma once

// Decides what is collected in this process, and when.
//
// Changes come from four sources: the daemon (order), other CUPTI clients (on_foreign_call, on
// their threads), threads about to create a graph (on_graph), and what the records show (tend). All
// take one lock. The workload's launches never take it: CUPTI's buffer requests work without it.
//
// Levels. Kernels launched one by one are always recorded; for graphs only their launches are,
// through CUPTI's GRAPH_TRACE. Two facts about CUPTI 13.0, both seen on an H200, govern that kind:
//   - Launching a graph with GRAPH_TRACE on crashes the process if the graph was captured while it
//     was off. Switching it on while graphs are being launched crashed in 2 of 5 cases. So the
//     thread that creates the first graph switches it on right before; once off, it stays off.
//     Where no hook sees graph creation, it is switched on during CUDA initialization, or never.
//   - Without GRAPH_TRACE, CONCURRENT_KERNEL records each kernel inside graphs, which can double
//     the duration of a launch of short kernels. So where graphs are launched that GRAPH_TRACE
//     cannot cover, kernels are recorded only in bursts.
// We never hold a subscriber: CUPTI has only one slot, PyTorch's profiler wants it, and taking it
// while other threads launch crashes (13.0, in 6 of 12 runs on an H200).
//
// Once CUPTI has been on, 0.5 us of each launch (of 3 us) remain, whatever is switched off, until
// cuptiFinalize ends it. That happens when nothing is wanted any more (see finalizer.h), but not
// where graphs were created or another client has used CUPTI, nor in a process that may still
// create its first graphs: graphs created after cuptiFinalize are not recorded.
// docs/decisions/0012-cupti.md.

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "injector/active_kinds.h"
#include "injector/buffers.h"
#include "injector/burst.h"
#include "injector/cupti_api.h"
#include "injector/cupti_clock.h"
#include "injector/cupti_records.h"
#include "injector/cupti_use.h"
#include "injector/finalizer.h"
#include "injector/foreign_clients.h"
#include "injector/pc_sampler.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

class Collector {
 public:
  Collector(Buffers& buffers, Batch& batch)
      : records_(api_, clock_, active_.calls(), batch), buffers_(buffers), batch_(batch) {}

  void allow_nodes() { burst_.allow_nodes(); }
  // CUPTI is not finalized during a pause until this long after the first order.
  void set_young(uint64_t young_ms) { young_ms_ = young_ms; }
  // In a process that is attached to: graphs may have been made before. GRAPH_TRACE is never
  // switched on there, so bursts by node take nothing away. `sees_graphs`: on_graph() is called
  // from now on.
  void set_attached(bool sees_graphs);
  // Before the library is detached: switches everything off and has CUPTI finalized, where that
  // harms nobody. True: done, `fate` says what became of CUPTI; false: call again after a moment,
  // at last with `is_last`. Our thread, as is revive().
  bool retire(bool is_last, uint64_t now_ms, const char*& fate);
  // The library is entered again.
  void revive();
  // Within cuInit: from now on, on_graph() is called before any graph is created.
  void trust_graph_hooks() { graphs_.store(Graphs::kNone); }
  // The first order, from within cuInit.
  void start_in_initialisation(const gpuperf_control& control, uint64_t now_ms);
  // The daemon's order. Injector's thread, as are all below.
  void order(const gpuperf_control& control, uint64_t now_ms);
  // The connection to the daemon came or went. Without it, what is collected is counted as lost;
  // nothing else changes.
  void set_connected(bool is_connected, uint64_t now_ms);
  // The daemon stayed away: stops collecting until one is back.
  void leave(uint64_t now_ms);
  // Flushes, decodes completed buffers, and does what is due: ends bursts, resumes CUPTI after
  // another client, reacts to what the records show.
  void tend(bool flush, uint64_t now_ms);
  // Final flush at process exit. CUPTI is not called after it.
  void finish(uint64_t now_ms);
  void fill_status(gpuperf_status& status) const;
  bool is_collecting() const;
  // Looks for libcupti in the process and interposes between it and its other clients.
  void watch_clients();

  // On another client's thread, before its call does its work.
  void on_foreign_call(ForeignCall call, uint32_t kind, const void* caller);
  // On a thread about to create a graph, from scratch (`begins`) or from another graph. The first
  // one waits until graphs are covered, if they are to be; later ones are not held up.
  void on_graph(bool begins);
  // Also at process exit.
  void after_fork_in_child();

 private:
  class Locked;
  // Launches wait while it lives, where they can be held. Else one was in the driver all the time.
  class HeldLaunches {
   public:
    explicit HeldLaunches(bool is_wanted = true);
    ~HeldLaunches();
    HeldLaunches(const HeldLaunches&) = delete;
    HeldLaunches& operator=(const HeldLaunches&) = delete;

   private:
    bool are_held_ = false;
  };
  // kUnknown: no hook sees graph creation. kUnseen: hooks do, but some may have been made before;
  // none was launched since, as far as records show.
  enum class Graphs { kUnknown, kNone, kMade, kUnseen };
  struct Want {
    uint32_t kinds = 0;  // kKind* bits
    bool all_apis = false;
    bool hooked_calls = false;  // hooks record calls, not CUPTI
    bool samples = false;
  };

  Want choose_kinds(uint64_t now_ms) const;
  bool can_collect() const;
  bool wants_any() const;
  bool can_hook_calls(uint64_t now_ms) const;
  bool must_wait_for_hooks(uint64_t now_ms);
  bool is_young(uint64_t now_ms) const;
  bool can_end() const { return find_why_not_to_end() == nullptr; }
  bool may_cover_graphs() const;
  bool must_prove_itself() const;
  CuptiFound find_library();
  bool prepare();
  bool register_buffers();
  void follow_launches(uint64_t now_ms);
  bool take_cupti();
  void forget_cupti();
  const char* find_why_not_to_end() const;
  const char* dismiss_cupti(uint64_t now_ms);
  void apply(uint64_t now_ms);
  void switch_kinds(const Want& want, uint64_t now_ms);
  void begin_hooked_calls(const Want& want, uint64_t now_ms);
  void end_hooked_calls(uint32_t off, uint64_t now_ms);
  bool can_switch(uint64_t now_ms) const;
  void switch_off(uint32_t kinds, uint64_t now_ms);
  void switch_on(const Want& want, bool holds);
  const char* find_why_not_to_sample(uint64_t now_ms) const;
  bool switch_sampling(bool is_on, uint64_t now_ms);
  void begin_sampling(uint64_t now_ms);
  bool end_sampling(uint64_t now_ms);
  void begin_gap(gpuperf_session_cause cause);
  void end_gap(uint64_t now_ms);
  void set_state(gpuperf_session_state state, gpuperf_session_cause cause, const char* detail);
  void fail(gpuperf_session_cause cause, const char* what, int result);
  void step_aside(const char* whom);
  void suspect_client(const CuptiUse& use, uint64_t now_ms);
  void begin_burst(uint64_t now_ms);
  void end_burst(uint64_t now_ms);
  void take_control(const gpuperf_control& control, uint64_t now_ms);
  void drain(bool is_stopping, uint64_t now_ms);
  void count_dropped();
  void judge_records(uint64_t now_ms);

  static void on_buffer_requested(uint8_t** buffer, size_t* size, size_t* records_max);
  static void on_buffer_completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size,
                                  size_t valid_size);
  static bool read_cupti_clock(uint64_t& cupti);

  // Guarded by lock_, except atomics.
  mutable pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
  CuptiApi api_;
  CuptiClock clock_;
  ActiveKinds active_{api_};
  CuptiRecords records_;
  Buffers& buffers_;
  Batch& batch_;
  gpuperf_control control_ = {};
  bool has_order_ = false;
  bool is_connected_ = false;
  bool is_prepared_ = false;
  bool is_clean_ = true;             // no launch so far will produce a record
  bool has_run_ = false;             // the daemon has asked for records
  bool waits_ = false;               // told to record later (GPUPERF_SESSION_LATER)
  uint64_t uncounted_since_ms_ = 0;  // since when hooks count no calls; 0 = they do
  uint64_t followed_since_ms_ =
      0;                       // since when launches are followed (launch_hooks.h); 0 = not yet
  uint32_t hooked_kinds_ = 0;  // kinds wanted when hooked calls began
  uint64_t first_order_ms_ = 0;
  uint64_t young_ms_ = 0;
  const char* why_lost_ = nullptr;  // the last reason for losing track
  uint32_t lost_tracks_ = 0;        // how often hooked calls and records did not match
  uint64_t hook_again_ms_ = 0;      // not before, hooked calls begin
  uint64_t fresh_until_ms_ = 0;     // deadline for hooked calls to begin; 0 = none
  uint64_t calls_when_asked_ = 0;
  bool has_looked_ = false;  // for libcupti
  Finalizer finalizer_;
  bool is_finalised_ = false;  // CUPTI has been finalized at least once
  CuptiUse use_left_;          // when the library was detached
  // How long a launch may take that hooks did not see begin.
  static constexpr uint64_t kUnseenMs = 1'000;
  // Launches were under way when CUPTI was to be finalized: each try holds others for 3 ms.
  static constexpr uint64_t kEndPauseMs = 250, kEndPauseMsMax = 8'000;
  uint64_t end_again_ms_ = 0;
  uint64_t end_pause_ms_ = kEndPauseMs;
  bool cannot_end_ = false;  // cuptiFinalize failed, or a graph was launched instead
  gpuperf_session_state state_ = GPUPERF_SESSION_STATE_WAITING;
  gpuperf_session_cause cause_ = GPUPERF_SESSION_CAUSE_NONE;
  char detail_[96] = "";
  uint64_t find_again_ms_ = 0;
  // Graphs.
  std::atomic<Graphs> graphs_ = Graphs::kUnknown;  // read without the lock
  bool in_initialisation_ = false;
  bool graphs_covered_ = false;   // GRAPH_TRACE has been on since before the first graph
  bool kernels_barred_ = false;   // graphs are launched that GRAPH_TRACE does not cover
  uint64_t kernels_from_ms_ = 0;  // kernels are not recorded before
  uint64_t calls_before_ = 0;     // call records when calls were switched on
  uint64_t kernels_before_ = 0;
  // API calls or allocations were recorded: cuptiFinalize may corrupt the heap.
  bool had_calls_ = false, had_allocations_ = false;
  uint64_t seen_graph_launches_ = 0;
  uint64_t seen_nodes_ = 0;
  uint64_t seen_untimed_ = 0;
  uint32_t device_buffer_trips_ = 0;
  Burst burst_;
  PcSampler sampler_;
  char why_not_sampled_[96] = "";  // the last attempt failed, or none can be made
  uint64_t sample_again_ms_ = 0;
  uint64_t settle_end_ms_ = 0;  // nothing is on until then: graphs lose their instrumentation
  ForeignClients foreign_;
  bool has_yielded_ = false;
  uint64_t yields_ = 0;
  // The current gap in collection.
  bool in_gap_ = false;
  gpuperf_session_cause gap_cause_ = GPUPERF_SESSION_CAUSE_NONE;
  uint64_t gap_start_unix_ns_ = 0;
  std::atomic<bool> is_dead_ = false;  // forked child, or the process is exiting
};

// The only collector; CUPTI callbacks reach it through these.
extern Collector* g_collector;
extern Buffers* g_buffers;

}  // namespace gpuperf::injector
