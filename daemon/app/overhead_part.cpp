#include "daemon/app/overhead_part.h"

#include <memory>
#include <utility>

#include "daemon/app/probing_part.h"
#include "daemon/app/sessions_part.h"
#include "daemon/model/trace_event.h"
#include "daemon/state/hook_cost.h"

namespace gpuperf {
namespace {

constexpr int64_t kEstimateNs = 3'000'000'000;
// From all being on or off until processes have recovered: attaching holds up their page faults.
constexpr int64_t kSettleNs = 100'000'000;
constexpr int64_t kShortestSliceNs = 500'000'000;
constexpr int64_t kLongestSliceNs = 1'000'000'000;

// What more detail by a rule costs can be measured.
bool is_in_the_way(const OverheadDemand& demand) {
  return demand.kind == OverheadDemand::Kind::kStandDown ||
         (demand.kind == OverheadDemand::Kind::kDetail && demand.until_mono_ns != 0);
}

}  // namespace

std::string explain_end(const OverheadDemand& demand) {
  if (demand.until_mono_ns != 0) return "end it with gpuperfctl overhead release";
  return "see gpuperfctl overhead rules; override it with gpuperfctl overhead detail --for 10m";
}

struct OverheadPart::Follower final : SessionFollower {
  Follower(OverheadPart& its_part, SessionEntry& its_entry) : part(its_part), entry(its_entry) {
    part.observed_.insert(entry.row().facts.process);
  }
  void close(const SessionClosed& /*closed*/) override {
    const ProcessKey& process = entry.row().facts.process;
    part.observed_.erase(part.observed_.find(process));
    part.probing_.set_hooked_call_cost(process, std::nullopt);
  }
  void take_status(const SessionStatus& status, int64_t /*now_mono_ns*/) override {
    part.take_progress(entry.row(), status);
    hook_cost.apply(status.timed_hooks, status.timed_hooks_ns);
    if (const auto cost_ns = hook_cost.ns()) {
      part.probing_.set_hooked_call_cost(entry.row().facts.process, cost_ns);
    }
  }

  OverheadPart& part;
  SessionEntry& entry;
  HookCost hook_cost;
};

OverheadPart::OverheadPart(Core& core, ProbingPart& probing, SessionsPart& sessions)
    : Part(core), probing_(probing), sessions_(sessions) {
  sessions.registry().add(
      [this](SessionEntry& entry) { return std::make_unique<Follower>(*this, entry); });
}

Status OverheadPart::begin(int64_t duration_ns) {
  if (phase_ != Phase::kOff) {
    return absl::FailedPreconditionError(
        "overhead is being measured already; its result: gpuperfctl overhead measure --last");
  }
  if (is_in_the_way(core_.demand)) {
    return absl::FailedPreconditionError(
        "more or less observation is demanded (" + core_.demand.reason +
        "), and measuring would override that; " + explain_end(core_.demand));
  }
  if (observed_.empty()) {
    return absl::NotFoundError(
        "no process has the injected library, which counts its calls while nothing is probed: "
        "start one with it, or gpuperfctl attach");
  }
  const int64_t now_mono_ns = core_.clock.mono_ns();
  random_.seed(static_cast<uint32_t>(now_mono_ns));
  trial_.emplace();
  report_ = {.is_running = true, .end_mono_ns = now_mono_ns + duration_ns};
  phase_ = Phase::kEstimating;
  due_mono_ns_ = now_mono_ns + kEstimateNs;
  core_.changed = true;
  log_info("measuring overhead: probes and launch hooks are switched off and on",
           {{"seconds", std::to_string(duration_ns / 1'000'000'000)}});
  return absl::OkStatus();
}

void OverheadPart::end(std::string stopped_by) {
  if (phase_ == Phase::kOff) return;
  report_.stopped_by = std::move(stopped_by);
  finish();
}

void OverheadPart::advance(int64_t now_mono_ns) {
  if (phase_ == Phase::kOff) return;
  if (phase_ == Phase::kEstimating) {
    for (const OverheadRow& row : probing_.overhead()) trial_->add_estimate(row.process, row.ratio);
  }
  if (phase_ == Phase::kSwitching || now_mono_ns < due_mono_ns_) return;
  switch (phase_) {
    case Phase::kEstimating:
      return switch_to_next(now_mono_ns);
    case Phase::kSettling:
      return begin_slice(now_mono_ns);
    case Phase::kMeasuring:
      sessions_.ask_progress(true);  // each answers at once
      phase_ = Phase::kClosing;
      due_mono_ns_ = now_mono_ns + kSettleNs;
      return;
    case Phase::kClosing:
      trial_->end_slice();
      return switch_to_next(now_mono_ns);
    case Phase::kOff:
    case Phase::kSwitching:
      return;
  }
}

void OverheadPart::begin_slice(int64_t now_mono_ns) {
  trial_->begin_slice(!is_off_);
  sessions_.ask_progress(true);
  phase_ = Phase::kMeasuring;
  due_mono_ns_ =
      now_mono_ns + std::uniform_int_distribution(kShortestSliceNs, kLongestSliceNs)(random_);
}

void OverheadPart::switch_to_next(int64_t now_mono_ns) {
  const bool is_new_pair = trial_->slices() % 2 == 0;
  if (is_new_pair && now_mono_ns >= report_.end_mono_ns) return finish();
  if (is_new_pair && trial_->slices() > 0 && !trial_->has_progress()) {
    return end("no injected process makes calls through launch hooks");
  }
  if (is_new_pair) is_first_off_ = random_() % 2 == 0;
  is_off_ = is_first_off_ == is_new_pair;
  phase_ = Phase::kSwitching;
  const auto settle = [this, its_switch = ++switches_] {
    if (its_switch != switches_ || phase_ != Phase::kSwitching) return;
    phase_ = Phase::kSettling;
    due_mono_ns_ = core_.clock.mono_ns() + kSettleNs;
  };
  if (!probing_.switch_all(is_off_, settle)) settle();
}

void OverheadPart::finish() {
  phase_ = Phase::kOff;
  ++switches_;
  sessions_.ask_progress(false);
  (void)probing_.switch_all(core_.demand.kind == OverheadDemand::Kind::kStandDown, [] {});
  report_.is_running = false;
  report_.end_mono_ns = core_.clock.mono_ns();
  report_.measurements = trial_->measure();
  trial_.reset();
  for (const OverheadMeasurement& measured : report_.measurements) {
    if (observed_.contains(measured.process)) probing_.correct_estimate(measured);
    log_info("overhead measured", {{"pid", std::to_string(measured.process.pid)},
                                   {"comm", measured.owner.comm},
                                   {"ratio", std::to_string(measured.ratio)},
                                   {"low_ratio", std::to_string(measured.low_ratio)},
                                   {"high_ratio", std::to_string(measured.high_ratio)},
                                   {"estimated_ratio", std::to_string(measured.estimated_ratio)}});
  }
  core_.changed = true;
}

void OverheadPart::take_progress(const SessionRow& row, const SessionStatus& status) {
  if (!trial_) return;
  trial_->apply(row.facts.process, row.facts.owner,
                {.calls = status.hooked_calls, .mono_ns = status.mono_ns});
}

void OverheadPart::fill(Snapshot& snapshot) const {
  snapshot.overhead_trial = report_;
  for (const OverheadMeasurement& measured : report_.measurements) {
    for (OverheadRow& row : snapshot.overhead) {
      if (is_same_process(row.process, measured.process)) row.measured = measured;
    }
  }
}

}  // namespace gpuperf
