#include "daemon/probe/probe_ledger.h"

#include <algorithm>
#include <utility>

namespace gpuperf {
namespace {

constexpr const char* kEntryOnlyReason =
    "mangled C++ name: counted at entry only, because an exception that passes a return probe "
    "aborts the process";
constexpr size_t kNamesShown = 4;

bool is_in(const ProbeRow& row) {
  return row.state == ProbeState::kAttached || row.state == ProbeState::kEntryOnly;
}

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

}  // namespace

ProbeLedger::ProbeLedger(const ProbeConfig& config,
                         std::shared_ptr<const std::vector<Function>> functions,
                         std::string_view mechanism)
    : config_(config), functions_(std::move(functions)), mechanism_(mechanism) {}

void ProbeLedger::note_outcome(int file_id, const std::string& library,
                               const ProbeOutcome& outcome) {
  const ProbePoint& point = outcome.point;
  ProbeRow row = make_row(point.function_id);
  row.library = library;
  row.offset_bytes = point.offset_bytes;
  if (!outcome.status.ok()) {
    row.state = ProbeState::kFailed;
    row.reason = std::string(outcome.status.message());
  } else {
    row.state = point.timed ? ProbeState::kAttached : ProbeState::kEntryOnly;
    row.reason = point.timed ? "" : kEntryOnlyReason;
    row.mechanism = mechanism_;
  }
  placed_[point.function_id].push_back({file_id, std::move(row)});
}

void ProbeLedger::note_failed(int file_id, const std::string& library, uint32_t function_id,
                              std::string reason) {
  ProbeRow row = make_row(function_id);
  row.state = ProbeState::kFailed;
  row.reason = std::move(reason);
  row.library = library;
  placed_[function_id].push_back({file_id, std::move(row)});
}

void ProbeLedger::note_missing(const std::string& library, uint32_t function_id) {
  missing_in_[function_id].insert(library.substr(library.rfind('/') + 1));
}

void ProbeLedger::fail_file(int file_id, const std::string& reason) {
  for (auto& [function_id, rows] : placed_) {
    for (Placed& placed : rows) {
      if (placed.file_id != file_id || !is_in(placed.row)) continue;
      placed.row.state = ProbeState::kFailed;
      placed.row.reason = reason;
      placed.row.mechanism.clear();
    }
  }
}

void ProbeLedger::forget_file(int file_id) {
  for (auto& [function_id, rows] : placed_) {
    std::erase_if(rows, [file_id](const Placed& placed) { return placed.file_id == file_id; });
  }
}

std::shared_ptr<const ProbeReport> ProbeLedger::make_report(std::vector<Problem> problems) const {
  auto report = std::make_shared<ProbeReport>();
  report->mechanism = mechanism_;
  report->problems = std::move(problems);
  std::set<int> files;
  for (uint32_t id = 0; id < functions_->size(); ++id) {
    const auto placed = placed_.find(id);
    if (placed == placed_.end() || placed->second.empty()) {
      report->probes.push_back(explain_unplaced(id));
      continue;
    }
    for (const Placed& entry : placed->second) {
      report->probes.push_back(entry.row);
      if (is_in(entry.row)) files.insert(entry.file_id);
    }
  }
  report->files = static_cast<uint32_t>(files.size());
  return report;
}

ProbeRow ProbeLedger::make_row(uint32_t function_id) const {
  const Function& function = (*functions_)[function_id];
  return {.category = function.category,
          .function = function.name,
          .symbol = function.symbol,
          .slow_threshold_ns = function.slow_threshold_ns};
}

ProbeRow ProbeLedger::explain_unplaced(uint32_t function_id) const {
  ProbeRow row = make_row(function_id);
  const auto missing = missing_in_.find(function_id);
  if (!config_.probes[function_id].enabled) {
    row.state = ProbeState::kDisabled;
    row.reason = kDisabledReason;
  } else if (missing == missing_in_.end()) {
    row.state = ProbeState::kWaiting;
    row.reason = "no process maps a library of this category yet";
  } else if (const std::string_view home = find_home_library(row.symbol);
             !any_begins_with(missing->second, home)) {
    row.state = ProbeState::kWaiting;
    row.reason = "no process maps " + std::string(home.substr(0, home.find('.'))) +
                 " yet; not in " + join_names(missing->second);
  } else {
    row.state = ProbeState::kSymbolMissing;
    row.reason = "not in " + join_names(missing->second);
  }
  return row;
}

}  // namespace gpuperf
