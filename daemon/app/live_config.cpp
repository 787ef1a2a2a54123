#include "daemon/app/live_config.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/base/wildcard.h"
#include "daemon/config/probe_config.h"

namespace gpuperf {
namespace {

using Names = std::pair<std::string, std::string>;

// Both kinds of overrides name functions alike.
template <typename Override>
bool concerns(const Override& change, const std::string& category, const std::string& function) {
  return (change.category.empty() || change.category == category) &&
         matches_wildcard(change.function, function);
}

// One that no longer says anything, because a later one covers all it covers.
template <typename Override>
bool is_covered(const Override& earlier, const Override& later) {
  return (later.category.empty() || later.category == earlier.category) &&
         (later.function == earlier.function || later.function == "*");
}

// NotFound when it concerns no function configured, and none found so far.
template <typename Override>
Status check_concerned(const Override& change, const ProbeConfig& config,
                       const FunctionList& functions) {
  const bool configured = std::ranges::any_of(config.probes, [&](const ProbeSpec& spec) {
    return concerns(change, spec.category, spec.function);
  });
  const bool found = std::ranges::any_of(functions, [&](const Function& function) {
    return concerns(change, function.category, function.name);
  });
  if (configured || found) return absl::OkStatus();
  return absl::NotFoundError("no function \"" + change.function + "\"" +
                             (change.category.empty() ? "" : " in category " + change.category) +
                             " is configured: gpuperfctl probes lists them");
}

template <typename Override>
void put_last(std::vector<Override>& overrides, Override change) {
  std::erase_if(overrides, [&](const Override& earlier) { return is_covered(earlier, change); });
  overrides.push_back(std::move(change));
}

}  // namespace

ProbeChange compare_probes(const ProbeConfig& before, const ProbeConfig& after) {
  std::map<Names, const ProbeSpec*> old;
  for (const ProbeSpec& spec : before.probes) {
    if (spec.enabled) old[{spec.category, spec.function}] = &spec;
  }
  ProbeChange change;
  for (const ProbeSpec& spec : after.probes) {
    if (!spec.enabled) continue;
    const auto known = old.find({spec.category, spec.function});
    if (known == old.end()) {
      ++change.added;
      continue;
    }
    ProbeSpec same_plan = spec;  // each parse makes a plan of its own
    same_plan.arguments = known->second->arguments;
    const bool same =
        same_plan == *known->second && is_same_plan(spec.arguments, known->second->arguments);
    ++(same ? change.unchanged : change.changed);
    old.erase(known);
  }
  change.removed = static_cast<uint32_t>(old.size());
  return change;
}

ProbeConfig LiveConfig::merge() const {
  ProbeConfig merged = file_.probes;
  for (const ProbeSpec& spec : added_) merged.probes.push_back(spec);
  merged.overrides = overrides_;
  merged.thresholds = thresholds_;
  if (is_standing_down_) {
    merged.overrides = {{.category = "", .function = "*", .enabled = false}};
    for (ProbeSpec& spec : merged.probes) spec.enabled = false;
    return merged;
  }
  for (ProbeSpec& spec : merged.probes) {
    // A pattern is looked for as long as any of its functions may be in.
    const bool many = spec.symbol.find('*') != std::string::npos;
    for (const ProbeOverride& change : overrides_) {
      if (concerns(change, spec.category, spec.function)) spec.enabled = change.enabled;
      if (many && change.enabled) spec.enabled = true;
    }
    if (many) continue;  // its functions get theirs by their own names: get_threshold_ns
    const std::optional<uint64_t> configured_ns = spec.slow_threshold_ns;
    for (const ThresholdOverride& change : thresholds_) {
      if (!concerns(change, spec.category, spec.function)) continue;
      spec.slow_threshold_ns = change.threshold_ns ? change.threshold_ns : configured_ns;
    }
  }
  return merged;
}

ProbePlan LiveConfig::make_plan() const {
  return {.config = merge(),
          .default_threshold_ns = threshold_ns_from_ms(file_.settings.slow.default_threshold_ms),
          .stacks = file_.settings.slow.stacks,
          .launch_hooks = file_.settings.overhead.launch_hooks && !is_standing_down_};
}

ProbeChange LiveConfig::set_standing_down(bool is_standing_down) {
  const ProbeConfig before = merge();
  is_standing_down_ = is_standing_down;
  return compare_probes(before, merge());
}

ProbeChange LiveConfig::replace_file(Config config) {
  const ProbeConfig before = merge();
  std::vector<std::string> restart = list_restart_settings(file_.settings, config.settings);
  file_ = std::move(config);
  std::erase_if(added_, [this](const ProbeSpec& spec) {
    return std::ranges::any_of(file_.probes.probes, [&](const ProbeSpec& other) {
      return other.category == spec.category && other.function == spec.function;
    });
  });
  ProbeChange change = compare_probes(before, merge());
  change.restart_needed = std::move(restart);
  for (const ConfigError& warning : file_.warnings)
    change.warnings.push_back(render_config_error("configuration", warning));
  return change;
}

Result<ProbeChange> LiveConfig::add(ProbeSpec spec) {
  const ProbeConfig before = merge();
  for (const ProbeSpec& known : before.probes) {
    if (known.category != spec.category || known.function != spec.function) continue;
    return absl::AlreadyExistsError(
        "category " + spec.category + " has a function \"" + spec.function +
        "\" already: choose another name, or change it in the configuration file and reload");
  }
  const bool is_new_category =
      std::ranges::find(before.probes, spec.category, &ProbeSpec::category) == before.probes.end();
  const bool names_libraries = !spec.library.empty() || before.libraries.contains(spec.category);
  const auto warning = find_section_warning(spec.category);
  added_.push_back(std::move(spec));
  ProbeChange change = compare_probes(before, merge());
  if (warning && is_new_category && !names_libraries)
    change.warnings.push_back(render_config_error("probe", *warning));
  return change;
}

Result<ProbeChange> LiveConfig::remove(std::string_view section, std::string_view name) {
  const std::string category(find_section_category(section).value_or(section));
  const auto is_meant = [&](const ProbeSpec& spec) {
    return spec.category == category && spec.function == name;
  };
  const ProbeConfig before = merge();
  if (std::erase_if(added_, is_meant) > 0) return compare_probes(before, merge());
  const std::string what = "\"" + std::string(name) + "\" in category " + category;
  if (std::ranges::any_of(file_.probes.probes, is_meant)) {
    return absl::FailedPreconditionError(what +
                                         " is in the configuration: disable it with gpuperfctl "
                                         "probes disable, or remove it from the file and reload");
  }
  return absl::NotFoundError("no function " + what + " was added: gpuperfctl probes lists them");
}

Result<ProbeChange> LiveConfig::set_enabled(ProbeOverride change, const FunctionList& functions) {
  const ProbeConfig before = merge();
  RETURN_IF_ERROR(check_concerned(change, before, functions));
  put_last(overrides_, std::move(change));
  return compare_probes(before, merge());
}

Result<ProbeChange> LiveConfig::set_threshold(ThresholdOverride change,
                                              const FunctionList& functions) {
  const ProbeConfig before = merge();
  RETURN_IF_ERROR(check_concerned(change, before, functions));
  put_last(thresholds_, std::move(change));
  return compare_probes(before, merge());
}

}  // namespace gpuperf
