#include "daemon/app/probing_part.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "daemon/app/kernel_part.h"
#include "daemon/app/tracing_part.h"
#include "daemon/owner/process_cpu.h"
#include "daemon/probe/attach/probe_report.h"

namespace gpuperf {
namespace {

// Suspensions change every few seconds; a crash may cost the last ones.
constexpr int64_t kWriteIntervalNs = 60'000'000'000;

constexpr LogEvent kProbeSuspended{"probe suspended by the overhead budget",
                                   "41c8d7d889b141a3993d487f41e05607"};

}  // namespace

ProbingPart::ProbingPart(Core& core, const KernelPart& kernel, const TracingPart& tracing,
                         Config config)
    : Part(core),
      kernel_(kernel),
      tracing_(tracing),
      config_(std::move(config)),
      budget_(core.settings.overhead.budget, core.clock.mono_ns()) {}

// Where nothing can be probed, the report says why there is no data.
Status ProbingPart::start() {
  auto report = std::make_shared<ProbeReport>();
  report_ = report;
  Programs* const programs = kernel_.programs();
  if (programs == nullptr) {
    const std::string why(kernel_.programs_status().message());
    *report = explain_no_probes(config_.make_plan().config, why);
    report->problems.push_back(
        {"probes", why, "no probes until you fix this and restart gpuperfd"});
    return absl::OkStatus();
  }
  report->mechanism = get_mechanism_name(programs->mechanism());
  prober_ = std::make_unique<Prober>(
      config_.make_plan(), core_.reader.make_files(), core_.registry, core_.tensor_layouts,
      *programs, core_.drops,
      Prober::Listeners{
          .on_report =
              [this](auto news) {
                core_.loop->post([this, news = std::move(news)] { take_report(news); });
              },
          .on_window =
              [this](uint32_t function_id, int64_t begin_mono_ns, int64_t end_mono_ns) {
                core_.loop->post(
                    [=, this] { budget_.end_window(function_id, begin_mono_ns, end_mono_ns); });
              }},
      FileSearch::Listeners{
          .on_watched = [this](uint32_t pid) { kernel_.symbolizer().post_prepare({.pid = pid}); },
          .on_mapping =
              [this](uint32_t pid, const std::string& path) {
                kernel_.symbolizer().note_mapping(pid, path);
              }});
  prober_->post_launch_reports(launch_reports_);
  read_suspended();
  return prober_->start();
}

// Detaching may take seconds (perf events most of all), and calls go on being recorded meanwhile:
// unless the loop takes their batches, the drain stops reading and the rings lose records.
void ProbingPart::stop() {
  write_suspended();
  // Out of prober_ at once: changes asked for meanwhile are refused.
  if (const auto prober = std::move(prober_)) stop_beside_loop([&] { prober->stop(); });
}

ProbeChange ProbingPart::set_demand(OverheadDemand demand) {
  asked_demand_ = std::move(demand);
  return put_demand_in_force();
}

void ProbingPart::set_standing_demand(OverheadDemand demand) {
  standing_demand_ = std::move(demand);
  put_demand_in_force();
  post_plan([this] { core_.publish(); });
}

ProbeChange ProbingPart::put_demand_in_force() {
  const bool is_asked = asked_demand_.kind != OverheadDemand::Kind::kNone;
  OverheadDemand demand = is_asked ? asked_demand_ : standing_demand_;
  if (demand != core_.demand) {
    log_warn("overhead demand",
             {{"demand", get_demand_name(demand.kind)}, {"reason", demand.reason}});
  }
  core_.demand = std::move(demand);
  core_.changed = true;
  return stand_down(core_.demand.kind == OverheadDemand::Kind::kStandDown);
}

ProbeChange ProbingPart::stand_down(bool is_standing_down) {
  budget_.set_standing_down(is_standing_down, core_.clock.mono_ns());
  return config_.set_standing_down(is_standing_down);
}

bool ProbingPart::switch_all(bool is_off, std::function<void()> done) {
  stand_down(is_off);
  return post_plan(std::move(done));
}

void ProbingPart::advance(int64_t now_mono_ns) {
  if (now_mono_ns >= next_write_ns_) {
    next_write_ns_ = now_mono_ns + kWriteIntervalNs;
    write_suspended();
  }
  if (asked_demand_.kind == OverheadDemand::Kind::kNone) return;
  if (now_mono_ns < asked_demand_.until_mono_ns) return;
  set_demand({});
  post_plan([this] { core_.publish(); });
}

void ProbingPart::fill(Snapshot& snapshot) const {
  snapshot.demand = core_.demand;
  snapshot.probes = report_;
  budget_.fill(snapshot);
  if (!prober_) return;
  prober_->fill(snapshot.self);
  snapshot.self.add(Bound::kFiles, report_->held_files, kMaxFoundFiles);
}

bool ProbingPart::post_plan(std::function<void()> done) {
  if (!prober_) return false;
  prober_->post_plan(config_.make_plan(),
                     // After the report of the change, which was posted before.
                     [this, done = std::move(done)] { core_.loop->post(done); });
  return true;
}

void ProbingPart::post_done(std::function<void()> done) {
  if (!prober_) return done();
  prober_->post_done([this, done = std::move(done)] { core_.loop->post(done); });
}

void ProbingPart::set_launch_reports(gpuperf_launch_reports wanted) {
  if (std::exchange(launch_reports_, wanted) == wanted || !prober_) return;
  prober_->post_launch_reports(wanted);
}

void ProbingPart::take_report(std::shared_ptr<const ProbeReport> report) {
  report_ = std::move(report);
  std::map<uint32_t, uint64_t> costs_ns;  // a function in several files costs what its dearest does
  for (const ProbeRow& row : report_->probes) {
    if (!is_placed(row.state)) continue;
    uint64_t& cost_ns = costs_ns[row.function_id];
    cost_ns = std::max(cost_ns, row.cost_ns);
  }
  const int64_t now_ns = core_.clock.mono_ns();
  const auto functions = core_.registry.get();
  for (const auto& [function_id, cost_ns] : costs_ns) {
    budget_.set_cost(function_id, cost_ns, now_ns);
    budget_.set_shows_steps(function_id, get_step_role(*functions, function_id) != StepRole::kNone);
    kernel_.programs()->set_call_cost(
        function_id, cost_ns,
        Budget::get_alarm_mask(config_.settings().overhead.budget.get_least_percent(), cost_ns));
  }
  for (const ProbeRow& row : report_->probes) {
    if (!is_placed(row.state)) continue;
    budget_.set_sampled(row.function_id, row.is_sampled, now_ns);
    if (row.state == ProbeState::kSuspended) budget_.note_suspended(row.function_id, now_ns);
  }
  restore_suspended(now_ns);
  core_.changed = true;
}

// Empty: there is no store, or it is another daemon's.
std::string ProbingPart::get_suspended_path() const {
  if (tracing_->captures().store() == nullptr) return "";
  return core_.settings.storage.path + "/suspended_functions.json";
}

void ProbingPart::read_suspended() {
  const std::string path = get_suspended_path();
  if (path.empty()) return;
  auto functions = read_suspended_functions(path);
  if (functions.ok()) {
    earlier_suspended_ = *std::move(functions);
  } else if (!absl::IsNotFound(functions.status())) {
    log_warn("suspended functions not read",
             {{"error", std::string(functions.status().message())}});
  }
}

// Those that have not been found again stay in the list.
void ProbingPart::write_suspended() {
  const std::string path = get_suspended_path();
  if (path.empty()) return;
  const auto names = core_.registry.get();
  std::vector<SuspendedFunction> functions = earlier_suspended_;
  for (const Suspension& suspension : budget_.list_suspensions()) {
    const Function& function = (*names)[suspension.function_id];
    functions.push_back({.category = function.category,
                         .function = function.name,
                         .comm = suspension.comm,
                         .share_ratio = suspension.share_ratio,
                         .times = suspension.times});
  }
  if (functions == written_suspended_) return;
  const Status written = write_suspended_functions(path, functions);
  if (!written.ok()) {
    log_warn("suspended functions not written", {{"error", std::string(written.message())}});
  }
  written_suspended_ = std::move(functions);
}

// As soon as they are probed.
void ProbingPart::restore_suspended(int64_t now_mono_ns) {
  if (earlier_suspended_.empty()) return;
  set_budget();
  const auto names = core_.registry.get();
  Budget::Decision decision;
  for (const ProbeRow& row : report_->probes) {
    if (!is_placed(row.state)) continue;
    const Function& function = (*names)[row.function_id];
    const auto earlier = std::ranges::find_if(earlier_suspended_, [&](const auto& known) {
      return known.category == function.category && known.function == function.name;
    });
    if (earlier == earlier_suspended_.end()) continue;
    const auto suspension = budget_.restore({.function_id = row.function_id,
                                             .comm = earlier->comm,
                                             .share_ratio = earlier->share_ratio,
                                             .times = earlier->times},
                                            now_mono_ns);
    if (suspension) decision.suspend.push_back(*suspension);
    earlier_suspended_.erase(earlier);
  }
  carry_out(decision, now_mono_ns);
}

void ProbingPart::set_budget() {
  budget_.set_limits(get_limits_in_force(config_.settings().overhead.budget, core_.demand));
}

void ProbingPart::judge_budget(int64_t now_mono_ns) {
  set_budget();
  Budget::Decision decision = budget_.judge(now_mono_ns, read_process_cpu_ns);
  carry_out(decision, now_mono_ns);
  if (prober_ && decision.window) prober_->post_window(*decision.window, Budget::kWindow);
  std::ranges::move(decision.estimates, std::back_inserter(missed_));
}

void ProbingPart::judge_budget_early(int64_t now_mono_ns) {
  set_budget();
  carry_out(budget_.judge_early(now_mono_ns, read_process_cpu_ns), now_mono_ns);
}

// Of it what is suspended and what no longer is.
void ProbingPart::carry_out(const Budget::Decision& decision, int64_t now_mono_ns) {
  const auto functions = core_.registry.get();
  for (const Suspension& out : decision.suspend) {
    suspended_.insert(out.function_id);
    log_warn(kProbeSuspended,
             {{"function", (*functions)[out.function_id].name},
              {"pid", std::to_string(out.process.pid)},
              {"comm", out.comm},
              {"share_ratio", std::to_string(out.share_ratio)},
              {"next_window_ms", std::to_string((out.until_mono_ns - now_mono_ns) / 1'000'000)}});
  }
  for (const uint32_t function_id : decision.resume) {
    if (suspended_.erase(function_id) == 0) continue;
    log_info("probe attached again after suspension",
             {{"function", (*functions)[function_id].name}});
  }
  const bool was_sampling = std::exchange(is_sampling_, budget_.is_on());
  const bool is_changed = !decision.suspend.empty() || !decision.resume.empty();
  if (prober_ && (is_changed || was_sampling != is_sampling_)) {
    prober_->post_suspended(suspended_, is_sampling_);
  }
}

}  // namespace gpuperf
