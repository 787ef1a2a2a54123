#pragma once

#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/config/config.h"
#include "daemon/model/control_port.h"
#include "daemon/model/function.h"
#include "daemon/probe/prober.h"

namespace gpuperf {

// The configuration in force: the file's, with what was changed at run time on top.
//
// Thread: one. A value. What was added or switched at run time stays over a reload of the file and
// ends with the daemon; a probe that the file now defines replaces one of that name added before.
class LiveConfig {
 public:
  explicit LiveConfig(Config config) : file_(std::move(config)) {}

  const Settings& settings() const { return file_.settings; }
  // Whether nothing is to be probed, whatever else is configured.
  ProbeChange set_standing_down(bool is_standing_down);
  const Config& file() const { return file_; }
  // What the prober is to do.
  ProbePlan make_plan() const;

  ProbeChange replace_file(Config config);
  // AlreadyExists when the category has a function of this name.
  Result<ProbeChange> add(ProbeSpec spec);
  // Takes one away that was added. NotFound; FailedPrecondition when the file has it.
  Result<ProbeChange> remove(std::string_view section, std::string_view name);
  // NotFound when no configured function, and none of `functions` (those found so far, which
  // wildcards add to), matches.
  Result<ProbeChange> set_enabled(ProbeOverride change, const FunctionList& functions);
  // Likewise.
  Result<ProbeChange> set_threshold(ThresholdOverride change, const FunctionList& functions);

 private:
  ProbeConfig merge() const;

  Config file_;
  std::vector<ProbeSpec> added_;
  std::vector<ProbeOverride> overrides_;
  std::vector<ThresholdOverride> thresholds_;
  bool is_standing_down_ = false;
};

// How two configurations differ, function by function; restart_needed stays empty.
ProbeChange compare_probes(const ProbeConfig& before, const ProbeConfig& after);

}  // namespace gpuperf
