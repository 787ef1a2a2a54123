#include "daemon/probe/attach/file_probes.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "daemon/base/demangle.h"
#include "daemon/base/wildcard.h"
#include "daemon/model/status_names.h"
#include "daemon/probe/arguments/argument_decoders.h"
#include "daemon/probe/elf/cpp_name.h"

namespace gpuperf {
namespace {

// The categories that are C interfaces of the GPU libraries: their functions return a status, and
// no exception leaves them (measured: docs/decisions/0002).
bool is_c_interface(std::string_view category) {
  constexpr std::string_view kCategories[] = {"cuda", "cublas", "cudnn", "nccl"};
  return std::ranges::find(kCategories, category) != std::end(kCategories);
}

// Each match of a wildcard is a function of its own; all overloads of a C++ name are one.
std::string get_function_name(const ProbeSpec& spec, const std::string& symbol) {
  if (spec.symbol.find('*') == std::string::npos) return spec.function;
  const std::string demangled = demangle(symbol);
  return spec.form == SymbolForm::kDemangled ? std::string(find_cpp_name(demangled)) : symbol;
}

Function make_function(const ProbeConfig& config, const ProbeSpec& spec, const std::string& symbol,
                       uint64_t default_threshold_ns) {
  Function function{.category = spec.category,
                    .name = get_function_name(spec, symbol),
                    .symbol = symbol,
                    .arguments = spec.arguments};
  function.slow_threshold_ns = get_threshold_ns(config, spec, function.name, default_threshold_ns);
  // Another library's "cudaFoo" may take and return anything.
  if (!is_c_interface(spec.category)) return function;
  function.status = find_status_kind(symbol);
  const StepRole role = spec.arguments ? spec.arguments->step_role : StepRole::kNone;
  const bool has_role_alone = role != StepRole::kNone && spec.arguments->fields.empty();
  if (spec.raw_arguments || (spec.arguments && !has_role_alone)) return function;
  const auto decoder = find_argument_decoder(symbol);
  if (decoder == nullptr) return function;
  function.arguments = has_role_alone ? add_role(*decoder, role) : decoder;
  return function;
}

// The last override that matches decides.
bool is_enabled(const ProbeConfig& config, const ProbeSpec& spec, const std::string& function) {
  bool enabled = spec.enabled;
  for (const ProbeOverride& change : config.overrides) {
    const bool in_category = change.category.empty() || change.category == spec.category;
    if (in_category && matches_wildcard(change.function, function)) enabled = change.enabled;
  }
  return enabled;
}

// Entries that name their function come before wildcards, which take what is left.
std::vector<uint32_t> order_specs(const ProbeConfig& config, std::vector<uint32_t> wanted) {
  std::stable_partition(wanted.begin(), wanted.end(), [&](uint32_t spec) {
    return config.probes[spec].symbol.find('*') == std::string::npos;
  });
  return wanted;
}

}  // namespace

uint64_t get_threshold_ns(const ProbeConfig& config, const ProbeSpec& spec,
                          const std::string& function, uint64_t default_ns) {
  std::optional<uint64_t> threshold_ns = spec.slow_threshold_ns;
  for (const ThresholdOverride& change : config.thresholds) {
    const bool in_category = change.category.empty() || change.category == spec.category;
    if (!in_category || !matches_wildcard(change.function, function)) continue;
    threshold_ns = change.threshold_ns ? change.threshold_ns : spec.slow_threshold_ns;
  }
  return threshold_ns.value_or(default_ns);
}

bool may_throw(const ProbeSpec& spec, const std::string& symbol) {
  if (spec.may_throw) return *spec.may_throw;
  const bool mangled = symbol.starts_with("_Z") || symbol.starts_with("_R");
  return mangled || !is_c_interface(spec.category);
}

FileProbes::Key FileProbes::get_key(const ProbeSpec& spec) {
  return {spec.category, spec.function, spec.symbol, spec.may_throw.value_or(true),
          is_operator(spec.arguments.get())};
}

const FileProbes::Entry* FileProbes::find_entry(const ProbeSpec& spec) const {
  const auto found = entries_.find(get_key(spec));
  return found == entries_.end() ? nullptr : &found->second;
}

FileProbes::Candidate FileProbes::make_candidate(CodeMap& code, const ProbeSpec& spec,
                                                 SymbolMatch match) {
  Candidate candidate{.match = std::move(match)};
  const FunctionSymbol& where = candidate.match.where;
  if (where.is_ifunc) {
    candidate.usable = false;
    candidate.reason =
        "indirect function: the code that runs is chosen at load time and has no symbol";
    return candidate;
  }
  if (spec.form == SymbolForm::kUsdt) {
    candidate.timing = Timing::kNone;
    candidate.placement.offset_bytes = where.file_offset_bytes;
    candidate.reason = "a static probe marks a place, not a call: counted, not timed";
    return candidate;
  }
  if (is_operator(spec.arguments.get())) {
    candidate.timing = Timing::kNone;
  } else if (may_throw(spec, candidate.match.symbol)) {
    Result<std::vector<ExitSite>> exits = find_exits(code, where);
    candidate.timing = exits.ok() ? Timing::kExits : Timing::kNone;
    if (exits.ok()) {
      candidate.exits = std::move(*exits);
    } else {
      candidate.reason =
          "counted at entry only: a C++ exception may pass through, and its exits are unknown: " +
          std::string(exits.status().message());
    }
  }
  Result<Placement> placement = place_entry(code, where, candidate.exits);
  candidate.usable = placement.ok();
  if (placement.ok()) {
    candidate.placement = *placement;
  } else {
    candidate.reason = std::string(placement.status().message());
  }
  return candidate;
}

Status FileProbes::examine(int fd, const ProbeConfig& config, const std::vector<uint32_t>& wanted) {
  std::vector<uint32_t> missing;
  std::vector<SymbolQuery> queries;
  for (const uint32_t spec : wanted) {
    if (find_entry(config.probes[spec]) != nullptr) continue;
    missing.push_back(spec);
    queries.push_back({config.probes[spec].form, config.probes[spec].symbol});
  }
  if (missing.empty()) return absl::OkStatus();
  Status unread;  // ok unless a table that may hold a missing function could not be read
  Result<std::vector<QueryMatches>> answers = match_symbols(fd, queries, &unread);
  Result<CodeMap> code = CodeMap::open(fd);
  const Status failed = !answers.ok() ? answers.status() : code.status();
  for (size_t i = 0; i < missing.size(); ++i) {
    const ProbeSpec& spec = config.probes[missing[i]];
    Entry& entry = entries_[get_key(spec)];
    if (!failed.ok()) {
      entry.unread = std::string(failed.message());
      continue;
    }
    QueryMatches& answer = (*answers)[i];
    for (SymbolMatch& match : answer.matches) {
      entry.candidates.push_back(make_candidate(*code, spec, std::move(match)));
    }
    if (answer.left_out_count > 0) {
      entry.unread = std::to_string(answer.left_out_count) + " further functions match: at most " +
                     std::to_string(kMaxMatches) + " are taken from one file; narrow the pattern";
    } else if (answer.matches.empty()) {
      entry.unread = std::string(unread.message());
    }
  }
  return failed;
}

std::vector<std::pair<size_t, std::string>> FileProbes::list_missing(
    const ProbeConfig& config, const std::vector<uint32_t>& wanted) const {
  std::vector<std::pair<size_t, std::string>> missing;
  for (const uint32_t spec : wanted) {
    const Entry* entry = find_entry(config.probes[spec]);
    if (entry == nullptr || (!entry->candidates.empty() && entry->unread.empty())) continue;
    missing.emplace_back(spec, entry->unread);
  }
  return missing;
}

std::vector<FileProbe> FileProbes::choose(const ProbeConfig& config,
                                          const std::vector<uint32_t>& wanted,
                                          FunctionRegistry& registry, uint64_t default_threshold_ns,
                                          DropCounters& drops) const {
  std::vector<FileProbe> chosen;
  std::vector<const Candidate*> candidates;  // of `chosen`
  std::vector<Function> functions;           // likewise
  for (const uint32_t position : order_specs(config, wanted)) {
    const ProbeSpec& spec = config.probes[position];
    const Entry* entry = find_entry(spec);
    if (entry == nullptr) continue;
    for (const Candidate& candidate : entry->candidates) {
      chosen.push_back({.spec = position, .symbol = candidate.match.symbol});
      candidates.push_back(&candidate);
      functions.push_back(
          make_function(config, spec, candidate.match.symbol, default_threshold_ns));
    }
  }
  std::vector<std::string> names;
  for (const Function& function : functions) names.push_back(function.name);
  const std::vector<uint32_t> ids = registry.add_all(std::move(functions));

  std::map<uint64_t, size_t> owners;  // where a function begins -> which of `chosen` probes it
  for (size_t i = 0; i < chosen.size(); ++i) {
    FileProbe& probe = chosen[i];
    const Candidate& candidate = *candidates[i];
    probe.function_id = ids[i];
    probe.hit_cost = candidate.placement.hit_cost;
    probe.reason = candidate.reason;
    probe.point = {.function_id = ids[i],
                   .offset_bytes = candidate.placement.offset_bytes,
                   .timing = candidate.timing,
                   .exits = candidate.exits,
                   .semaphore_offset_bytes = candidate.match.semaphore_offset_bytes};
    if (ids[i] == FunctionRegistry::kFull) {
      drops.add(DropCause::kProbesFunctionsFull);
      probe.reason = "the limit of " + std::to_string(registry.capacity()) +
                     " functions is reached: raise stats.max_functions";
    } else if (!is_enabled(config, config.probes[probe.spec], names[i])) {
      probe.state = ProbeState::kDisabled;
      probe.reason = "disabled";
    } else if (candidate.usable) {
      const auto [owner, is_first] = owners.try_emplace(candidate.match.where.file_offset_bytes, i);
      probe.state =
          candidate.timing == Timing::kNone ? ProbeState::kEntryOnly : ProbeState::kAttached;
      if (is_first) continue;
      probe.state = ProbeState::kAlias;
      probe.reason = "the same code as " + names[owner->second] + ", which counts its calls";
    }
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    FileProbe& probe = chosen[i];
    const auto target = candidates[i]->placement.thunk_target_offset_bytes;
    if (!target || !is_probed(probe.state)) continue;
    const auto owner = owners.find(*target);
    if (owner == owners.end() || chosen[owner->second].state == ProbeState::kAlias) continue;
    probe.state = ProbeState::kAlias;
    probe.reason = "only jumps to " + names[owner->second] + ", which counts its calls";
  }
  // Several names of one function's own code (constructors, versions) need no rows of their own.
  std::set<std::pair<uint32_t, uint64_t>> seen;
  std::erase_if(chosen, [&](const FileProbe& probe) {
    return probe.function_id != FunctionRegistry::kFull &&
           !seen.emplace(probe.function_id, probe.point.offset_bytes).second;
  });
  std::ranges::stable_sort(chosen, {}, &FileProbe::spec);
  return chosen;
}

}  // namespace gpuperf
