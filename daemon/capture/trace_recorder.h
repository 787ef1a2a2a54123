#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/capture/gpu_counter_history.h"
#include "daemon/capture/graph_sites.h"
#include "daemon/model/capture.h"
#include "daemon/model/capture_order.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/self_report.h"
#include "daemon/model/session.h"
#include "daemon/model/trace_event.h"
#include "daemon/state/session_registry.h"

namespace gpuperf {

// The flight recorder: what probes and sessions reported of the last seconds, as 32-byte events in
// the order they came, and the same for captures that run.
//
// Thread: loop only. Owns the events; a window taken of them shares the chunks. Bounds: `max_bytes`
// and `span_ns` for the recorder, whose oldest chunk leaves; a pin's own bound for a capture, which
// then misses what comes and counts it (kTraceCaptureFull). The tables of an epoch are bounded: a
// full one begins the next epoch, and so does one that has become old, since whose processes are
// may have gone; beyond kMaxTableBytes in all, the oldest chunks leave with theirs. What is kept of
// a session's dictionary is in its account: a name or shape that finds no room there is missing in
// traces. Sites beyond kMaxSites are left out (kTraceTablesFull).
// Not here: what belongs to what (join_trace).
class TraceRecorder {
 public:
  struct Options {
    uint64_t max_bytes = uint64_t{64} << 20;  // 0 = nothing is kept but for pins
    uint64_t span_ns = 30'000'000'000;
  };
  static constexpr size_t kMaxSites = 65'536;
  static constexpr uint64_t kMaxTableBytes = uint64_t{32} << 20;   // of all epochs
  static constexpr uint64_t kSmallTableBytes = uint64_t{1} << 18;  // never too old
  // The kernel side tells a site anew after GPUPERF_SITE_RESEND_NS, so an older one is unused.
  static constexpr uint64_t kKeepSitesNs = 3 * GPUPERF_SITE_RESEND_NS;

  struct Chunk {
    std::shared_ptr<const TraceTables> tables;
    TraceEvents events;
    uint64_t number = 0;          // order of their beginning
    uint64_t newest_mono_ns = 0;  // end of the event that ended last
    uint64_t filled_mono_ns = 0;  // nothing came into it later; 0 = not looked at yet
  };
  static constexpr size_t kChunkEvents = 2'048;  // 64 KiB
  // What a capture holds on to: every chunk since it was made.
  struct Pin {
    uint64_t max_bytes = 0;
    uint64_t from_mono_ns = 0;
    std::vector<std::shared_ptr<Chunk>> chunks;
    uint64_t lost_events = 0;
    bool is_for_capture = true;  // its losses are counted as those of captures
    uint64_t count_events() const;
  };

  TraceRecorder(Options options, DropCounters& drops);
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  void apply(const TraceBatch& batch);
  void apply(const Step& step);
  void apply(const ProcessExited& exited) { graphs_.apply(exited); }
  void apply(const GpuHealthReport& report);
  void follow(SessionRegistry& sessions);
  void expire(int64_t now_mono_ns);

  // Begins with what the recorder holds, of `from_mono_ns` and later, and with at most
  // `before_bytes` from before it.
  std::shared_ptr<Pin> pin(uint64_t from_mono_ns, uint64_t max_bytes, uint64_t before_bytes = 0);
  // Ends it.
  TraceWindow take(const std::shared_ptr<Pin>& pin) { return take(std::span(&pin, 1)); }
  // Ends all of them: what any of them holds, once.
  TraceWindow take(std::span<const std::shared_ptr<Pin>> pins);
  // Events that ended before may have left already; 0 = none have.
  uint64_t forgotten_mono_ns() const { return forgotten_mono_ns_; }
  // Whether it keeps anything but for pins.
  bool is_recording() const { return options_.max_bytes > 0; }
  // The newest times of anything that came, by way: later events of earlier times are rare.
  uint64_t complete_mono_ns() const { return complete_mono_ns_; }
  RecorderRow row(int64_t now_mono_ns) const;
  // How full its tables are, and its memory.
  void fill(SelfReport& report) const;
  // What is known of graphs that were captured.
  GraphSites& graphs() { return graphs_; }

 private:
  struct Session final : SessionFollower {
    Session(TraceRecorder& its_recorder, const SessionEntry& entry)
        : recorder(its_recorder),
          process(entry.row().facts.process),
          account(entry.memory(), entry.holder()) {}
    void take_batch(const SessionBatch& batch, int64_t) override { recorder.apply(*this, batch); }
    void take_status(const SessionStatus& status, int64_t) override {
      recorder.apply(*this, status);
    }

    TraceRecorder& recorder;
    const ProcessKey process;
    SessionMemory::Account account;
    std::vector<std::shared_ptr<const std::string>> names;  // by the session's ids
    std::vector<LaunchShape> shapes;
    std::vector<Place> places;
    std::array<uint64_t, 10> losses{};
    uint64_t clock_error_ns = 0;
    // By the session's ids: where the epoch has it; kTraceNone = not yet.
    uint64_t epoch = 0;
    uint32_t process_index = kTraceNone;
    std::vector<uint32_t> name_index;
    std::vector<uint32_t> shape_index;
    std::vector<uint32_t> place_index;
    std::unordered_map<uint32_t, uint32_t> graph_index;
  };
  struct Site {
    TraceSite site;
    uint64_t told_mono_ns = 0;
  };

  bool is_wanted() const { return options_.max_bytes > 0 || !pins_.empty(); }
  void apply(Session& session, const SessionBatch& batch);
  void apply(Session& session, const SessionStatus& status);
  void add_samples(Session& session, const std::vector<StallRecord>& records);
  void begin_epoch();
  uint64_t count_table_bytes() const;  // of all epochs
  void make_room(Session& session, const SessionBatch& batch);
  uint32_t get_process(const ProcessKey& process);
  uint32_t get_name(Session& session, uint32_t id);
  uint32_t get_shape(Session& session, uint32_t id);
  uint32_t get_place(Session& session, uint32_t id);
  uint32_t get_graph(Session& session, uint32_t id);
  uint32_t get_stack(uint64_t stack_id);
  uint32_t get_captured(const CapturedGraphPtr& graph);
  void keep_sites(const TraceBatch& batch);
  TraceEvent make(const Session& session, TraceKind kind, uint64_t start_ns, uint64_t duration_ns);
  void add(const TraceEvent& event);
  void add(const TraceThreadTime& time);
  void begin_chunk();
  void drop_oldest();
  bool is_full(const TraceEvents& events) const { return events.size() >= kChunkEvents; }

  // Set once in the constructor.
  const Options options_;
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  std::shared_ptr<TraceTables> tables_;
  uint64_t epoch_ = 0;
  uint64_t epoch_mono_ns_ = 0;                            // when it began, as far as is known
  std::unordered_map<uint64_t, uint32_t> process_index_;  // by pid and start; of this epoch
  std::unordered_map<uint64_t, uint32_t> stack_index_;    // likewise
  std::unordered_map<const CapturedGraph*, uint32_t> captured_index_;
  std::unordered_map<std::string_view, uint32_t> name_index_;
  std::deque<std::shared_ptr<Chunk>> chunks_;  // oldest first; the last one is being filled
  std::vector<std::weak_ptr<Pin>> pins_;
  std::unordered_map<uint64_t, Site> sites_;
  GraphSites graphs_;
  GpuCounterHistory gpu_counters_;
  uint64_t complete_mono_ns_ = 0;
  uint64_t newest_mono_ns_ = 0;
  uint64_t forgotten_mono_ns_ = 0;
  uint64_t last_chunk_ = 0;
};

}  // namespace gpuperf
