#include "daemon/probe/attach/probe_report.h"

#include <algorithm>
#include <set>

namespace gpuperf {
namespace {

constexpr const char* kDisabledReason = "disabled";
constexpr size_t kNamesShown = 4;

std::string join_names(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown++ == kNamesShown) {
      return text + ", … " + std::to_string(names.size() - kNamesShown) + " more";
    }
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

// Beginning of the file name of the library a CUDA symbol lives in. One section covers several
// libraries, and a symbol is not missing while only the others have been seen.
std::string_view find_home_library(std::string_view symbol) {
  constexpr std::pair<std::string_view, std::string_view> kHomes[] = {
      {"cublasLt", "libcublasLt."}, {"cublas", "libcublas."}, {"cudnn", ""},
      {"cuda", "libcudart"},        {"cu", "libcuda."},
  };
  for (const auto& [prefix, library] : kHomes) {
    if (symbol.starts_with(prefix)) return library;
  }
  return "";
}

bool any_begins_with(const std::set<std::string>& names, std::string_view prefix) {
  return std::ranges::any_of(
      names, [prefix](const std::string& name) { return name.starts_with(prefix); });
}

ProbeRow make_row(const ProbeSpec& spec) {
  return {.category = spec.category,
          .function = spec.function,
          .symbol = spec.symbol,
          .is_sampled = spec.is_sampled};
}

ProbeRow make_row(const ReportInput& input, const FileReport& file, const FileProbe& probe) {
  ProbeRow row = make_row(input.config.probes[probe.spec]);
  row.function_id = probe.function_id;
  row.symbol = probe.symbol;
  row.state = probe.state;
  row.reason = probe.reason;
  row.library = file.path;
  row.offset_bytes = probe.point.offset_bytes;
  if (probe.function_id < input.functions.size()) {
    row.function = input.functions[probe.function_id].name;
    row.slow_threshold_ns = input.functions[probe.function_id].slow_threshold_ns;
  }
  if (!is_placed(probe.state) || probe.function_id >= input.functions.size()) return row;
  row.mechanism = input.mechanism;
  row.hit_cost = probe.hit_cost;
  row.exit_sites = static_cast<uint32_t>(probe.point.exits.size());
  const Function& function = input.functions[probe.function_id];
  row.cost_ns = get_call_cost(input.costs, probe.hit_cost, probe.point.timing, function).total_ns;
  return row;
}

// A row for an entry that is in no file.
ProbeRow explain_unplaced(const ReportInput& input, size_t position,
                          const std::set<std::string>& missing_in) {
  const ProbeSpec& spec = input.config.probes[position];
  ProbeRow row = make_row(spec);
  row.slow_threshold_ns =
      get_threshold_ns(input.config, spec, spec.function, input.default_threshold_ns);
  if (!spec.enabled) {
    row.state = ProbeState::kDisabled;
    row.reason = kDisabledReason;
  } else if (missing_in.empty()) {
    row.state = ProbeState::kWaiting;
    row.reason = "no process has loaded a library of this category yet";
  } else if (const std::string_view home = find_home_library(spec.symbol);
             !any_begins_with(missing_in, home)) {
    row.state = ProbeState::kWaiting;
    row.reason = "no process has loaded " + std::string(home.substr(0, home.find('.'))) +
                 " yet; not in " + join_names(missing_in);
  } else {
    row.state = ProbeState::kSymbolMissing;
    row.reason = "not in " + join_names(missing_in);
  }
  return row;
}

}  // namespace

std::shared_ptr<const ProbeReport> make_probe_report(const ReportInput& input) {
  auto report = std::make_shared<ProbeReport>();
  report->mechanism = input.mechanism;
  report->held_files = static_cast<uint32_t>(input.files.size());
  report->problems = input.problems;
  std::vector<std::vector<ProbeRow>> rows(input.config.probes.size());
  std::vector<std::set<std::string>> missing_in(input.config.probes.size());
  for (const FileReport& file : input.files) {
    for (const FileProbe& probe : file.probes) {
      rows[probe.spec].push_back(make_row(input, file, probe));
    }
    if (std::ranges::any_of(file.probes, [](const FileProbe& p) { return is_probed(p.state); })) {
      ++report->files;
    }
    for (const auto& [position, reason] : file.missing) {
      if (reason.empty()) {
        missing_in[position].emplace(file.path.substr(file.path.rfind('/') + 1));
        continue;
      }
      ProbeRow row = make_row(input.config.probes[position]);
      row.state = ProbeState::kFailed;
      row.reason = reason;
      row.library = file.path;
      rows[position].push_back(std::move(row));
    }
  }
  for (size_t position = 0; position < rows.size(); ++position) {
    if (rows[position].empty()) {
      rows[position].push_back(explain_unplaced(input, position, missing_in[position]));
    }
    std::ranges::move(rows[position], std::back_inserter(report->probes));
  }
  return report;
}

ProbeReport explain_no_probes(const ProbeConfig& config, std::string_view reason) {
  ProbeReport report;
  for (const ProbeSpec& spec : config.probes) {
    ProbeRow row = make_row(spec);
    row.state = spec.enabled ? ProbeState::kFailed : ProbeState::kDisabled;
    row.reason = spec.enabled ? std::string(reason) : kDisabledReason;
    report.probes.push_back(std::move(row));
  }
  return report;
}

}  // namespace gpuperf
