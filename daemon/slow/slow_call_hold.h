#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/capture/trace_recorder.h"
#include "daemon/model/drops.h"
#include "daemon/model/gpu_during_call.h"
#include "daemon/model/session.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/trace_event.h"
#include "daemon/slow/gpu_during_call.h"
#include "daemon/state/session_registry.h"

namespace gpuperf {

// Holds slow calls of injected processes until all that their GPUs did meanwhile has come, and has
// been read by whoever takes the batches.
//
// Thread: loop only; times are passed in. Owns the calls; the recorder and `drops` must outlive it.
// Promises: every call that add() took comes out again, once, with what is known: by finish(), or
// by give_up() when that takes kMaxWaitNs too long. Bounds: kMaxHeld calls, with kMaxPinBytes of
// the recorder's events each, which they share; what is beyond goes without, counted
// (kSlowGpuSide). kMaxEndedSessions are remembered for kKeepSessionNs. One batch is out at a time,
// of one process: what is slow often is read once. Not here: reading the events
// (list_gpu_during_calls).
class SlowCallHold {
 public:
  static constexpr size_t kMaxHeld = 256;
  static constexpr size_t kMaxEndedSessions = 1'024;
  // Beside the settle time, a second until a call in flight is looked at, and that to name its
  // stacks: well within SlowCalls::kGoneAfterNs.
  static constexpr uint64_t kMaxWaitNs = 3'000'000'000;
  static constexpr uint64_t kKeepSessionNs = 60'000'000'000;
  // Launches lie before their work: as long before as 128 Ki events go back.
  static constexpr uint64_t kBeforeBytes = uint64_t{4} << 20;
  static constexpr uint64_t kMaxPinBytes = uint64_t{16} << 20;
  // Work that a call launched is seen when it begins so long after the call.
  static constexpr uint64_t kAfterNs = 1'000'000'000;

  struct Batch {
    uint64_t id = 0;
    ProcessKey process;
    uint64_t from_mono_ns = 0;
    uint64_t to_mono_ns = 0;  // kAfterNs behind the last call
    std::vector<CallInCapture> calls;
    TraceWindow window;
    uint64_t lost_events = 0;  // there was no room for
  };

  SlowCallHold(TraceRecorder& recorder, DropCounters& drops) : recorder_(recorder), drops_(drops) {}
  SlowCallHold(const SlowCallHold&) = delete;
  SlowCallHold& operator=(const SlowCallHold&) = delete;

  void follow(SessionRegistry& sessions);

  // False = the call is to go on at once, with what was set in it; nothing is, where its process
  // has no session. True = moved in. `settle_ns`: after that its time is known in full.
  bool add(SlowCall& call, uint64_t now_mono_ns, uint64_t settle_ns);
  // The next calls to be read, if some are due and no batch is out.
  std::optional<Batch> take_due(uint64_t now_mono_ns);
  // The calls of the batch, in its order, with what was found. None where they were given up
  // before.
  std::vector<SlowCall> finish(uint64_t batch_id, std::vector<GpuDuringCall> found);
  // Those that have waited too long.
  std::vector<SlowCall> give_up(uint64_t now_mono_ns);
  size_t count() const { return calls_.size(); }
  // All there are: nothing is waited for any more.
  std::vector<SlowCall> release_all();

 private:
  struct Session {
    ProcessKey process;
    uint64_t opened_mono_ns = 0;
    uint64_t closed_mono_ns = 0;  // 0 = open
    std::optional<SessionStatus> status;
  };
  struct Follower;
  struct Entry {
    SlowCall call;
    uint64_t due_mono_ns = 0;
    std::shared_ptr<TraceRecorder::Pin> pin;
    std::vector<std::string> missing;
    uint64_t batch_id = 0;  // 0 = in none yet
  };

  void forget_sessions(uint64_t now_mono_ns);
  const Session* find_session(const ProcessKey& process) const;
  std::vector<std::string> list_missing(const Session& session, uint64_t start_mono_ns,
                                        uint64_t end_mono_ns) const;
  void go_without(SlowCall& call, const std::string& why);
  template <typename Condition>
  std::vector<SlowCall> release(const Condition& is_released);

  TraceRecorder& recorder_;
  DropCounters& drops_;
  // Loop thread only.
  std::list<Session> sessions_;  // in the order they opened
  std::deque<Entry> calls_;      // in the order they came
  uint64_t last_batch_ = 0;
  bool is_batch_out_ = false;
};

}  // namespace gpuperf
