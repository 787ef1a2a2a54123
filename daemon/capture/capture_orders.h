#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/proc_files.h"
#include "daemon/base/result.h"
#include "daemon/capture/captures.h"
#include "daemon/capture/trace_sources.h"
#include "daemon/model/control_port.h"
#include "daemon/model/snapshot.h"
#include "daemon/state/session_windows.h"
#include "daemon/store/capture_store.h"

namespace gpuperf {

// Carries out orders for captures: who may capture what, when each begins and ends (Captures),
// building, and the files.
//
// Thread: loop only. Owns the store of captures; the build thread writes to it and must stop before
// this ends. Where the store does not work every order fails and says why.
class CaptureOrders {
 public:
  struct Parts {
    const SnapshotBoard& board;
    ProcFiles proc;
    SessionWindows* windows = nullptr;  // null = sessions collect all the time
    std::function<void()> on_change;    // something to publish
    std::function<void()> on_wanted;    // wanted() may have changed
  };

  CaptureOrders(const TraceSources& sources, Parts parts);
  CaptureOrders(const CaptureOrders&) = delete;
  CaptureOrders& operator=(const CaptureOrders&) = delete;

  // What is wrong with the store.
  const std::optional<Problem>& problem() const { return problem_; }
  const CaptureStore* store() const { return store_.get(); }

  // It may begin a moment later: see await_begin.
  Result<CaptureRow> start(const CaptureOrder& order);
  // Calls once this capture has begun, or has failed before.
  using OnBegun = std::function<void(const CaptureRow&)>;
  void await_begin(uint64_t id, OnBegun on_begun);
  Result<CaptureRow> stop(uint64_t id);
  Result<CaptureRow> freeze(const FreezeOrder& order);
  Result<CaptureRow> remove(uint64_t id);
  void apply(const ChildStarted& child) { captures_.add_child(child.parent, child.child); }
  void apply_settings() { captures_.set_options(make_capture_options(sources_.settings)); }
  // Often: captures begin and end on it.
  void advance();
  // Calls what still waits for a beginning, with the capture as it is.
  void stop_awaiting() { answer_awaited(true); }

  std::vector<Captures::Wanted> wanted() const {
    return captures_.wanted(static_cast<uint64_t>(sources_.clock.mono_ns()));
  }
  // Probes are not to be suspended meanwhile.
  bool needs_every_probe() const;
  std::vector<CaptureRow> rows() const { return captures_.rows(); }
  void fill(SelfReport& report) const {
    report.add(Bound::kRunningCaptures, captures_.count_running(), Captures::kMaxRunning);
    if (store_) store_->fill(report);
  }

 private:
  std::unique_ptr<CaptureStore> open_store();
  Captures make_captures();
  std::string get_unfinished_path() const;
  void keep_unfinished();
  Result<std::vector<ProcessKey>> find_processes(const CaptureTarget& target,
                                                 uint32_t requester_uid) const;
  void expire_stored();
  void begin_opened();
  void answer_awaited(bool is_last_time);
  void build(FinishedCapture finished);
  void post_result(uint64_t id, Result<CaptureRow> row);  // any thread

  // Set once in the constructor.
  const TraceSources& sources_;
  const Parts parts_;
  std::optional<Problem> problem_;
  const std::unique_ptr<CaptureStore> store_;  // null = none; used by the build thread, too
  // Loop thread only.
  Captures captures_;
  std::vector<uint64_t> kept_unfinished_;  // ids, as in the file
  uint64_t next_expire_mono_ns_ = 0;
  // By capture: sessions that it waits for, and who waits for it.
  std::vector<std::pair<uint64_t, SessionWindows::Target>> opening_;
  std::vector<std::pair<uint64_t, OnBegun>> awaited_;
};

}  // namespace gpuperf
