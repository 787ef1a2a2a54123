#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/model/session.h"
#include "daemon/state/gpu_activity.h"
#include "daemon/state/gpu_processes.h"
#include "daemon/state/kernel_texts.h"
#include "daemon/state/launch_join.h"
#include "daemon/state/session_registry.h"

namespace gpuperf {

// Turns the records of sessions into statistics of kernels, copies, waits, graphs and memory per
// process, joins launches with their kernels, and follows how busy each GPU is.
//
// Thread: loop only; times are passed in. Owns everything it fills a report with; `drops` must
// outlive it. A record costs about 100 ns and allocates nothing once its kernel, place and kind of
// copy are known (docs/overhead.md, "GPU records"). Bounds: those of its parts (GpuProcesses,
// KernelTexts, GpuActivities, LaunchJoin, DeviceMemory), and SessionMemory for what is kept of a
// session or process. A record whose ids were never announced, or found no room, is counted
// (kSessionBadIds) and left out.
// Not here: what sessions say about themselves (SessionRegistry).
class GpuStatistics {
 public:
  GpuStatistics(const GpuProcesses::Limits& limits, DropCounters& drops)
      : drops_(drops), texts_(drops), activities_(drops), processes_(limits, drops) {}
  GpuStatistics(const GpuStatistics&) = delete;
  GpuStatistics& operator=(const GpuStatistics&) = delete;

  // From now on; expire() what `sessions` has first.
  void follow(SessionRegistry& sessions);
  void set_keep_exited(std::chrono::seconds keep) { processes_.set_keep_exited(keep); }
  void expire(int64_t now_mono_ns);

  // Sets everything but the sessions.
  void fill(GpuReport& report) const;
  void fill(SelfReport& report) const {
    report.add(Bound::kKernelTexts, texts_.used_bytes(), texts_.max_bytes());
    processes_.fill(report);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Of a join's target: it is a graph, not a kernel.
  static constexpr uint32_t kGraphTarget = uint32_t{1} << 31;

  struct PlaceFacts {
    GpuUuid uuid{};
    uint32_t ordinal = 0;
    uint32_t device = GpuActivities::kNone;
    bool is_known = false;
    SmLimits sm;
  };
  struct Session final : SessionFollower {
    Session(GpuStatistics& its_statistics, SessionEntry& its_entry);
    void take_batch(const SessionBatch& batch, int64_t now_mono_ns) override;
    void take_status(const SessionStatus& status, int64_t now_mono_ns) override;
    void close(const SessionClosed& closed) override;
    void expire(int64_t now_mono_ns) override;
    void show_join();

    GpuStatistics& statistics;
    SessionEntry& entry;
    GpuProcess& process;
    SessionMemory::Account account;   // of what follows
    std::vector<uint32_t> kernels;    // by name id: where its process keeps it
    uint32_t last_unkept_name = 0;    // announced, but not in `kernels`: there was no room
    std::vector<PlaceFacts> places;   // by place id
    std::vector<LaunchShape> shapes;  // by shape id
    std::set<uint32_t> sampled;       // kernels with samples that their rows do not show yet
    LaunchJoin join;
    JoinTotals join_totals;
    uint64_t collected_ns = 0;  // that its GPUs know of
    uint32_t sample_every = 1;
    bool sends_apis = true;     // as far as its status says
    bool expects_work = false;  // each call it sends causes something that it sends, too
    // Of the batch at hand: its process may keep nothing more, so kernels count as "other" and what
    // else would need a row of its own is left out.
    bool is_full = false;
  };

  void apply(Session& session, const SessionBatch& batch, int64_t now_mono_ns);
  void learn(Session& session, const SessionBatch& batch);
  void learn(Session& session, const Place& place);
  void apply(Session& session, const ApiRecord& record, int64_t now_mono_ns);
  void apply(Session& session, const KernelRecord& record, int64_t now_mono_ns);
  void apply(Session& session, const GraphRecord& record, int64_t now_mono_ns);
  void apply(Session& session, const CopyRecord& record, int64_t now_mono_ns);
  void apply(Session& session, const SyncRecord& record);
  void apply(Session& session, const MemoryRecord& record);
  void apply(Session& session, const OverheadRecord& record);
  void apply(Session& session, const SessionGap& gap);
  void apply(Session& session, const StallRecord& record);
  void apply(Session& session, const SamplingRecord& record);
  void learn(Session& session, const LaunchShape& shape);
  void learn(Session& session, const CubinLines& cubin);
  void show_samples(Session& session);
  void show_launch(Session& session, uint32_t kernel, const KernelRecord& record,
                   const PlaceFacts& place);
  void join(Session& session, const LaunchJoin::Match& match);
  const PlaceFacts* find_place(const Session& session, uint32_t place_id);

  // Set once in the constructor.
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  KernelTexts texts_;
  GpuActivities activities_;
  GpuProcesses processes_;
  bool is_sweep_due_ = false;  // of texts_: a session has closed
  int64_t swept_mono_ns_ = 0;
};

}  // namespace gpuperf
