#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/result.h"
#include "daemon/base/shares.h"
#include "daemon/base/thread_checker.h"
#include "daemon/capture/capture_builder.h"
#include "daemon/capture/trace_recorder.h"
#include "daemon/config/config.h"
#include "daemon/model/capture_order.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// A capture that is over and complete, to be built.
struct FinishedCapture {
  CaptureScope scope;
  TraceWindow window;
};

// Captures from their order until they are built: begins, ends and settles each at its time, and
// keeps the rows of all.
//
// Thread: loop only; times are passed in. The recorder must outlive it. Bounds: kMaxRunning at
// once, of which kKeptForRoot are root's and the daemon's own, and kMaxOfUser may be another
// user's; kMaxFailedRows of those that failed are remembered.
// Not here: what the kernel side traces for them (wanted_orders() says what it should), files.
class Captures {
 public:
  static constexpr size_t kMaxRunning = 8;
  static constexpr size_t kKeptForRoot = 2;
  static constexpr size_t kMaxOfUser = 3;
  static constexpr size_t kMaxFailedRows = 100;

  struct Options {
    uint64_t max_bytes = uint64_t{256} << 20;  // of all that run
    uint64_t max_duration_ns = 600'000'000'000;
    // What came to pass at the end of the window is known by then.
    uint64_t settle_ns = 2'000'000'000;
  };
  struct Now {
    uint64_t mono_ns = 0;
    uint64_t unix_ns = 0;
  };
  // What a running capture wants to be traced.
  struct Wanted {
    bool all_processes = true;
    std::vector<ProcessKey> processes;
    bool with_children = false;
    bool cpu = true;
    bool gpu = true;
    bool nodes = false;
    bool operator==(const Wanted&) const = default;
  };

  // `stored`: rows of earlier runs.
  Captures(Options options, TraceRecorder& recorder, std::vector<CaptureRow> stored,
           uint64_t last_id);

  void set_options(const Options& options) {
    loop_thread_.check();
    options_ = options;
  }
  // `processes`: that the order's target means; empty and a target given = none of it lives. Begins
  // `delay_ns` from now at the earliest.
  Result<CaptureRow> start(const CaptureOrder& order, std::vector<ProcessKey> processes,
                           const Now& now, uint64_t delay_ns = 0);
  Result<CaptureRow> freeze(const FreezeOrder& order, std::vector<ProcessKey> processes,
                            const Now& now);
  Result<CaptureRow> stop(uint64_t id, const Now& now);
  // What it was to begin later for has come to pass.
  void begin_now(uint64_t id, const Now& now);
  // A process of a target with children has begun.
  void add_child(const ProcessKey& parent, const ProcessKey& child);

  // Begins and ends what is due. The finished ones are to be built; their state is kBuilding.
  std::vector<FinishedCapture> advance(const Now& now, uint64_t lost_hits);
  void set_stored(const CaptureRow& row);
  void set_failed(uint64_t id, const std::string& problem);
  // Forgets rows of stored ones that the store has let go.
  void keep_stored(const std::vector<CaptureRow>& stored);
  // Removes the row of one that has ended. NotFound; FailedPrecondition.
  Status remove(uint64_t id);

  // What is to be traced: for those that run, and for kKeptLaunchesNs after they have ended.
  std::vector<Wanted> wanted(uint64_t now_mono_ns) const;
  std::vector<CaptureRow> rows() const;
  size_t count_running() const { return running_.size(); }
  std::vector<CaptureRow> unfinished() const;    // neither stored nor failed
  uint64_t last_id() const { return last_id_; }  // given to a capture
  const CaptureRow* find(uint64_t id) const;

 private:
  struct Running {
    uint64_t id = 0;
    uint32_t requester_uid = 0;
    CaptureOrder order;
    CaptureScope scope;
    uint64_t begin_unix_ns = 0;
    uint64_t end_mono_ns = 0;  // 0 = not yet begun
    bool is_traced = false;    // else it takes what the recorder has
    uint64_t lost_hits_before = 0;
    uint64_t events_before = 0;               // that the recorder held when it began
    std::shared_ptr<TraceRecorder::Pin> pin;  // null = not yet begun
  };

  CaptureRow* find_row(uint64_t id);
  CaptureRow& add_row(const std::string& name, const std::string& trigger,
                      const CaptureTarget& target);
  Status take_place(uint32_t requester_uid);
  void end(const Running& running);  // its place is free
  void begin(Running& running, const Now& now, uint64_t lost_hits);
  void update_rows(const Now& now);

  // So long after a launch a process may still report it: injected libraries report every 100 ms.
  static constexpr uint64_t kKeptLaunchesNs = 250'000'000;

  // Loop thread only.
  ThreadChecker loop_thread_;
  Options options_;
  TraceRecorder& recorder_;
  uint64_t last_id_;
  std::vector<CaptureRow> rows_;  // by id
  std::vector<Running> running_;
  Shares places_{
      {.total = kMaxRunning, .kept_for_root = kKeptForRoot, .of_user = kMaxOfUser}};  // of running_
};

Captures::Now read_now(const Clock& clock);
Captures::Options make_capture_options(const Settings& settings);

}  // namespace gpuperf
