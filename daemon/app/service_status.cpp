#include "daemon/app/service_status.h"

#include <algorithm>

namespace gpuperf {
namespace {

std::string count_of(uint64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string describe_probes(const ProbeReport& report) {
  const auto attached = static_cast<uint64_t>(std::ranges::count_if(
      report.probes, [](const ProbeRow& row) { return is_probed(row.state); }));
  if (attached > 0) return count_of(attached, "probe") + " in " + count_of(report.files, "file");
  // Usual on a host where nothing uses a GPU yet.
  return "nothing is probed yet: no process has loaded one of the libraries";
}

}  // namespace

std::string describe_service(const Snapshot& snapshot) {
  const ProbeReport nothing;
  const ProbeReport& report = snapshot.probes ? *snapshot.probes : nothing;
  std::vector<Problem> problems = report.problems;
  problems.insert(problems.end(), snapshot.problems.begin(), snapshot.problems.end());
  if (problems.empty()) return describe_probes(report);
  std::string text = "degraded: " + problems[0].subject + ": " + problems[0].message;
  if (problems.size() > 1) text += " (and " + std::to_string(problems.size() - 1) + " more)";
  text += "; " + (report.mechanism == "none" ? "nothing is probed" : describe_probes(report));
  return text + "; see gpuperfctl status";
}

}  // namespace gpuperf
