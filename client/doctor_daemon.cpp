#include <absl/strings/str_join.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "client/capture_text.h"
#include "client/demand_text.h"
#include "client/doctor.h"
#include "client/text.h"
#include "client/version.h"

namespace gpuperf::client {
namespace {

// "a, b, c and 4 more".
std::string name_some(const std::vector<std::string>& names) {
  std::string text = absl::StrJoin(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamed)),
      ", ");
  if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
  return text;
}

Check check_version(const v1::GetStatusResponse& status) {
  const std::string text =
      fmt::format("gpuperfctl {}, gpuperfd {}", get_client_version(), status.version());
  if (status.version() == get_client_version()) return {"version", CheckState::kOk, text, ""};
  return {"version", CheckState::kHint, text,
          "install the same version of both; after an upgrade: sudo systemctl restart gpuperfd"};
}

bool can_probe(const v1::GetStatusResponse& status) { return status.mechanism() != "none"; }

// Where nothing can be probed, the daemon's problems say why.
std::vector<Check> check_mechanism(const v1::GetStatusResponse& status) {
  const std::string& mechanism = status.mechanism();
  if (!can_probe(status) && !status.problems().empty()) return {};
  if (!can_probe(status)) {
    return {{"mechanism", CheckState::kProblem, "nothing can be probed",
             "run gpuperfd as root, or with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and "
             "CAP_DAC_READ_SEARCH; what failed: journalctl -u gpuperfd"}};
  }
  const std::string text =
      fmt::format("probes attach with mechanism \"{}\" on kernel {}", mechanism, status.kernel());
  if (mechanism != "perf") return {{"mechanism", CheckState::kOk, text, ""}};
  return {{"mechanism", CheckState::kHint,
           text + ", one by one: starting, reloading and stopping are slow",
           "kernel 6.6 and later attach all probes of a file at once"}};
}

std::vector<Check> check_recorder(const v1::GetStatusResponse& status) {
  if (!status.has_recorder()) return {};  // an older daemon
  const v1::Recorder& recorder = status.recorder();
  if (recorder.enabled()) {
    return {{"recorder", CheckState::kOk, describe_recorder_content(recorder), ""}};
  }
  return {{"recorder", CheckState::kHint, "the flight recorder is off: gpuperfd keeps no history",
           "set trace.recorder = true and restart gpuperfd; until then: gpuperfctl trace start"}};
}

std::vector<Check> check_problems(const v1::GetStatusResponse& status) {
  std::vector<Check> checks;
  for (const v1::Problem& problem : status.problems()) {
    checks.push_back({problem.subject(), CheckState::kProblem, problem.message(), problem.hint()});
  }
  return checks;
}

Check check_config(const DaemonAnswers& answers) {
  const std::string& path = answers.config.path();
  if (answers.config_file.has_value() && *answers.config_file != answers.config.json()) {
    return {"config", CheckState::kHint, path + " has changed since gpuperfd read it",
            fmt::format("gpuperfctl config check {}; sudo gpuperfctl config reload", path)};
  }
  const std::string state =
      answers.config_file.has_value() ? "in use, unchanged on disk" : "in use";
  return {"config", CheckState::kOk, fmt::format("{} is {}", path, state), ""};
}

Check check_overhead(const v1::GetStatusResponse& status) {
  if (status.overhead_ratio() == 0) {
    return {"overhead", CheckState::kOk, "no process is slowed down measurably", ""};
  }
  return {"overhead", CheckState::kOk,
          fmt::format("gpuperf takes most in process {}: an estimated {} of its time",
                      status.overhead_pid(), format_ratio(status.overhead_ratio())),
          ""};
}

std::vector<Check> check_demand(const v1::GetStatusResponse& status) {
  if (status.overhead_demand() != v1::OVERHEAD_DEMAND_STAND_DOWN) return {};
  return {
      {"overhead", CheckState::kProblem,
       fmt::format("{}, because it was demanded: {}", describe_demand(status),
                   status.overhead_demand_reason()),
       status.overhead_demand_remaining_ns() > 0
           ? "to end that: sudo gpuperfctl overhead release"
           : "gpuperfctl overhead rules; to override: sudo gpuperfctl overhead detail --for 10m"}};
}

// One line per process: its functions have one cause.
std::vector<Check> check_suspensions(const v1::GetStatusResponse& status) {
  struct Suspended {
    std::string comm;
    std::vector<std::string> functions;
    double share_ratio = 0;
    uint64_t remaining_ns = 0;  // of the one that is back last
  };
  std::map<uint32_t, Suspended> processes;
  for (const v1::Suspension& row : status.suspensions()) {
    Suspended& suspended = processes[row.pid()];
    suspended.comm = row.comm();
    suspended.functions.push_back(row.function());
    suspended.share_ratio += row.share_ratio();
    suspended.remaining_ns = std::max<uint64_t>(suspended.remaining_ns, row.remaining_ns());
  }
  std::vector<Check> checks;
  for (const auto& [pid, suspended] : processes) {
    const std::string back =
        suspended.remaining_ns == 0
            ? "any moment"
            : fmt::format("within {}", format_duration(suspended.remaining_ns));
    checks.push_back(
        {"budget", CheckState::kHint,
         fmt::format("suspended by the overhead budget in {}: {}; their probes took {} of its time",
                     pid == 0 ? fmt::format("{}, before gpuperfd was restarted", suspended.comm)
                              : fmt::format("process {} ({})", pid, suspended.comm),
                     name_some(suspended.functions), format_ratio(suspended.share_ratio)),
         fmt::format("their calls are estimated, the next time {}; raise overhead.budget_percent, "
                     "or disable some of them: "
                     "sudo gpuperfctl probes disable NAME",
                     back)});
  }
  return checks;
}

std::vector<Check> check_drops(const v1::GetStatusResponse& status) {
  if (status.drops().empty()) return {{"drops", CheckState::kOk, "no data was dropped", ""}};
  std::vector<Check> checks;
  for (const v1::Drop& drop : status.drops()) {
    checks.push_back({"drops", CheckState::kHint,
                      fmt::format("{} {}: {} dropped since gpuperfd started", drop.stage(),
                                  drop.reason(), format_count(drop.count())),
                      drop.meaning()});
  }
  return checks;
}

Check check_calls(const v1::GetStatusResponse& status) {
  if (status.calls() > 0) {
    return {"calls", CheckState::kOk,
            fmt::format("{} counted, in {} running processes", format_count(status.calls()),
                        format_count(status.processes())),
            ""};
  }
  return {"calls", CheckState::kHint, "no probed function has been called yet",
          "check that the workload runs on this host and uses a library listed above"};
}

// The probes of one category: functions by what became of them.
struct Category {
  std::map<v1::ProbeState, std::vector<std::string>> functions;
  std::vector<std::string> files;
  std::map<v1::ProbeState, std::string> reasons;  // one of each

  size_t count(v1::ProbeState state) const {
    const auto found = functions.find(state);
    return found == functions.end() ? 0 : found->second.size();
  }
};

// A category of the shipped configuration: not every host uses each, nor has each version of it.
bool is_shipped(std::string_view category) {
  constexpr std::string_view kShipped[] = {"cuda", "cublas", "cudnn", "nccl", "libtorch"};
  return std::ranges::find(kShipped, category) != std::end(kShipped);
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end()) {
    list.push_back(text);
  }
}

// "12 functions probed in 2 files, 3 of them counted without durations".
Check describe_probed(const std::string& name, const Category& category) {
  const size_t timed = category.count(v1::PROBE_STATE_ATTACHED);
  const size_t entry_only = category.count(v1::PROBE_STATE_ENTRY_ONLY);
  const size_t in_windows = category.count(v1::PROBE_STATE_SUSPENDED);
  const size_t probed = timed + entry_only + in_windows;
  const size_t waiting = category.count(v1::PROBE_STATE_WAITING);
  const std::string see = fmt::format("gpuperfctl probes --category {}", name);
  if (probed == 0 && waiting > 0) {
    return {name, is_shipped(name) ? CheckState::kOk : CheckState::kHint,
            fmt::format("no running process has loaded one of its libraries; functions waiting: {}",
                        waiting),
            is_shipped(name) ? ""
                             : fmt::format("start the workload; if its library has an unusual "
                                           "name, add it to libraries in the configuration; {}",
                                           see)};
  }
  if (probed == 0) return {name, CheckState::kHint, "no function is probed", see};
  std::string text =
      fmt::format("functions probed: {}, in files: {}", probed, category.files.size());
  if (entry_only > 0) text += fmt::format("; counted but not timed: {}", entry_only);
  if (in_windows > 0) text += fmt::format("; counted in short windows only: {}", in_windows);
  const size_t aliases = category.count(v1::PROBE_STATE_ALIAS);
  if (aliases > 0) text += fmt::format("; counted under another name: {}", aliases);
  return {name, CheckState::kOk, text, ""};
}

void add_findings(const std::string& name, const Category& category, std::vector<Check>& checks) {
  struct Finding {
    v1::ProbeState state;
    CheckState weight;
    std::string_view words;
    std::string_view hint;
  };
  constexpr Finding kFindings[] = {
      {v1::PROBE_STATE_FAILED, CheckState::kProblem, "attaching failed", ""},
      {v1::PROBE_STATE_SYMBOL_MISSING, CheckState::kHint, "not found in the loaded libraries",
       "the library may be of another version: correct or remove these symbols in the "
       "configuration"},
      {v1::PROBE_STATE_DISABLED, CheckState::kHint, "disabled",
       "sudo gpuperfctl probes enable NAME"}};
  const bool is_probed =
      category.count(v1::PROBE_STATE_ATTACHED) + category.count(v1::PROBE_STATE_ENTRY_ONLY) > 0;
  for (const Finding& finding : kFindings) {
    const auto found = category.functions.find(finding.state);
    if (found == category.functions.end()) continue;
    const auto reason = category.reasons.find(finding.state);
    std::string text = fmt::format("{}: {}", finding.words, name_some(found->second));
    const bool told = reason == category.reasons.end() || reason->second == finding.words;
    if (!told) text += fmt::format(" ({})", reason->second);
    const std::string see = fmt::format("gpuperfctl probes --category {}", name);
    // The shipped list is of several versions of a library.
    if (finding.state == v1::PROBE_STATE_SYMBOL_MISSING && is_shipped(name) && is_probed) {
      checks.push_back({name, CheckState::kOk, std::move(text), ""});
      continue;
    }
    checks.push_back({name, finding.weight, std::move(text),
                      finding.hint.empty() ? see : std::string(finding.hint)});
  }
}

}  // namespace

std::vector<Check> check_probes(const std::vector<v1::Probe>& probes) {
  std::vector<std::pair<std::string, Category>> categories;
  for (const v1::Probe& probe : probes) {
    auto found = std::find_if(categories.begin(), categories.end(),
                              [&](const auto& entry) { return entry.first == probe.category(); });
    if (found == categories.end()) {
      found = categories.insert(categories.end(), {probe.category(), Category()});
    }
    Category& category = found->second;
    add_once(category.functions[probe.state()], probe.function());
    if (!probe.mechanism().empty()) add_once(category.files, probe.library());
    if (!probe.reason().empty()) category.reasons.try_emplace(probe.state(), probe.reason());
  }
  std::vector<Check> checks;
  for (const auto& [name, category] : categories) {
    checks.push_back(describe_probed(name, category));
    add_findings(name, category, checks);
  }
  if (checks.empty()) {
    checks.push_back({"probes", CheckState::kProblem, "no function is configured",
                      "add a section of functions to the configuration (docs/configuration.md), "
                      "then: sudo gpuperfctl config reload"});
  }
  return checks;
}

std::vector<Check> check_daemon(const DaemonAnswers& answers) {
  const v1::GetStatusResponse& status = answers.status;
  std::vector<Check> checks = {check_version(status)};
  const bool probes = can_probe(status);  // else all of them have the one cause
  for (auto& list :
       {check_mechanism(status), std::vector<Check>{check_config(answers)}, check_problems(status),
        probes ? check_probes(answers.probes) : std::vector<Check>(),
        probes ? std::vector<Check>{check_calls(status), check_overhead(status)}
               : std::vector<Check>(),
        check_sessions(answers), answers.gpus ? check_gpus(*answers.gpus) : std::vector<Check>(),
        check_demand(status), check_suspensions(status), check_recorder(status),
        check_limits(status), check_drops(status)}) {
    checks.insert(checks.end(), list.begin(), list.end());
  }
  return checks;
}

}  // namespace gpuperf::client
