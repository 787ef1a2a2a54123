#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "daemon/app/part.h"
#include "daemon/model/session.h"
#include "daemon/state/overhead_trial.h"

namespace gpuperf {

class ProbingPart;
class SessionsPart;

// What to do against a demand: that of a person ends when asked to.
std::string explain_end(const OverheadDemand& demand);

// Measures what probes and launch hooks cost by switching all of them off and on again, at random
// within pairs of slices of 0.5 to 1 s, while injected processes tell how many calls they make.
// CUPTI stays as it is: what it costs is measured by its own windows (LaunchCosts).
//
// Only on demand: while all is off, no call is counted, on the whole host.
class OverheadPart final : public Part {
 public:
  OverheadPart(Core& core, ProbingPart& probing, SessionsPart& sessions);
  Status start() override { return absl::OkStatus(); }
  void stop() override { end("gpuperfd is stopping"); }
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override;

  // Begins one. FailedPrecondition: one runs, a demand is in force, or sessions are not taken;
  // NotFound: no process has one.
  Status begin(int64_t duration_ns);
  // Ends the one that runs, if any, with all on again.
  void end(std::string stopped_by);
  // Of the last one, or of the one that runs.
  const OverheadTrialReport& report() const { return report_; }

 private:
  enum class Phase { kOff, kEstimating, kSwitching, kSettling, kMeasuring, kClosing };
  struct Follower;

  void take_progress(const SessionRow& row, const SessionStatus& status);
  void begin_slice(int64_t now_mono_ns);
  void switch_to_next(int64_t now_mono_ns);
  void finish();

  ProbingPart& probing_;
  SessionsPart& sessions_;
  std::multiset<ProcessKey, ProcessOrder> observed_;  // a process per open session
  Phase phase_ = Phase::kOff;
  int64_t due_mono_ns_ = 0;  // of the phase
  std::optional<OverheadTrial> trial_;
  bool is_off_ = false;
  bool is_first_off_ = false;  // of the pair
  uint64_t switches_ = 0;      // answers to earlier ones are late
  std::minstd_rand random_;
  OverheadTrialReport report_;
};

}  // namespace gpuperf
