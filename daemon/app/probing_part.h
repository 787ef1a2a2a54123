#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "daemon/app/live_config.h"
#include "daemon/app/part.h"
#include "daemon/probe/prober.h"
#include "daemon/state/budget.h"
#include "daemon/store/suspended_functions.h"

namespace gpuperf {

class KernelPart;
class TracingPart;

// The probes: what is to be probed, by the configuration in force and the overhead budget, and what
// became of it.
class ProbingPart final : public Part {
 public:
  ProbingPart(Core& core, const KernelPart& kernel, const TracingPart& tracing, Config config);
  Status start() override;
  void stop() override;
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override;

  LiveConfig& config() { return config_; }
  // Of somebody, until a time; comes before that of rules. To be followed by post_plan.
  ProbeChange set_demand(OverheadDemand demand);
  // Of rules and others' files, until they make another.
  void set_standing_demand(OverheadDemand demand);
  const OverheadDemand& standing_demand() const { return standing_demand_; }
  // Probes and counts nothing, or as configured again, for the moment: no demand, and not logged.
  // As post_plan.
  bool switch_all(bool is_off, std::function<void()> done);
  // By the last judgement.
  const std::vector<OverheadRow>& overhead() const { return budget_.overhead(); }
  // Where it and the estimate disagree, what the process's calls are taken to cost from now on.
  void correct_estimate(const OverheadMeasurement& measured) { budget_.correct(measured); }
  // Puts the configuration in force; `done` is called on the loop, after the report of it. False:
  // nothing can be probed.
  bool post_plan(std::function<void()> done);
  // `done` is called on the loop once all that was asked for is in force; at once where nothing can
  // be probed.
  void post_done(std::function<void()> done);
  // What launch hooks are to report.
  void set_launch_reports(gpuperf_launch_reports wanted);
  void apply(const CellDelta& delta) { budget_.apply(delta); }
  void apply(const ProcessExited& exited) { budget_.apply(exited); }
  void apply(const ThreadCosts& costs) { budget_.apply(costs); }
  // Processes that CUPTI's part of the budget is taken from.
  void set_recorded(std::set<ProcessKey, ProcessOrder> processes) {
    budget_.set_recorded(std::move(processes));
  }
  void set_hooked_call_cost(const ProcessKey& process, std::optional<double> cost_ns) {
    budget_.set_hooked_call_cost(process, cost_ns);
  }
  void judge_budget(int64_t now_mono_ns);
  void judge_budget_early(int64_t now_mono_ns);
  std::vector<Suspension> list_suspensions() const { return budget_.list_suspensions(); }
  // Calls of suspended functions, as they become known.
  std::vector<Budget::Estimate> take_missed() { return std::exchange(missed_, {}); }

 private:
  ProbeChange put_demand_in_force();
  ProbeChange stand_down(bool is_standing_down);
  void set_budget();
  void carry_out(const Budget::Decision& decision, int64_t now_mono_ns);
  std::string get_suspended_path() const;
  void read_suspended();
  void write_suspended();
  void restore_suspended(int64_t now_mono_ns);
  void take_report(std::shared_ptr<const ProbeReport> report);

  const KernelPart& kernel_;
  const TracingPart& tracing_;
  LiveConfig config_;
  std::unique_ptr<Prober> prober_;  // null where probes cannot be used
  std::shared_ptr<const ProbeReport> report_ = std::make_shared<const ProbeReport>();
  Budget budget_;
  OverheadDemand asked_demand_, standing_demand_;  // the first one is in force, if there is one
  std::set<uint32_t> suspended_;
  // Of the last run, until they are found again; what the file has.
  std::vector<SuspendedFunction> earlier_suspended_, written_suspended_;
  int64_t next_write_ns_ = 0;
  bool is_sampling_ = true;  // as the prober knows it
  std::vector<Budget::Estimate> missed_;
  gpuperf_launch_reports launch_reports_ = GPUPERF_LAUNCHES_NONE;
};

}  // namespace gpuperf
