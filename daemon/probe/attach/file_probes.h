#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/code/placement.h"
#include "daemon/probe/elf/symbol_match.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

// Threshold of a slow call of `function`, which `spec` asks for; the last override that matches
// decides.
uint64_t get_threshold_ns(const ProbeConfig& config, const ProbeSpec& spec,
                          const std::string& function, uint64_t default_ns);

// One function of a file that the configuration means, and what becomes of it.
struct FileProbe {
  size_t spec = 0;  // position in ProbeConfig::probes
  uint32_t function_id = FunctionRegistry::kFull;
  std::string symbol;  // as the file spells it
  ProbePoint point;
  HitCost hit_cost = HitCost::kUnknown;
  ProbeState state = ProbeState::kFailed;  // kAttached and kEntryOnly: to be attached
  std::string reason;
};

// What is in one file: the functions of the configuration that were looked for in it, and where
// their probes sit. Remembers every look-up, so that a changed configuration costs only what is
// new.
//
// Thread: one. A value. Reads the file only in examine(). Bounds: kMaxMatches functions per entry
// of the configuration. Not here: attaching.
class FileProbes {
 public:
  // Looks for the entries of `wanted` (positions in `config.probes`) that were not looked for yet.
  // An error says why nothing could be looked for in the file; list_missing() has it too.
  Status examine(int fd, const ProbeConfig& config, const std::vector<uint32_t>& wanted);

  // What should be done with the functions found for `wanted`, in the order of the configuration.
  // Of several names of the same code one is probed; the others are aliases of it. New functions
  // are added to `registry`, known ones take on what the configuration now says of them.
  std::vector<FileProbe> choose(const ProbeConfig& config, const std::vector<uint32_t>& wanted,
                                FunctionRegistry& registry, uint64_t default_threshold_ns,
                                DropCounters& drops) const;

  // Entries of `wanted` of which the file has nothing, with the reason where one could not be
  // looked for (else empty).
  std::vector<std::pair<size_t, std::string>> list_missing(
      const ProbeConfig& config, const std::vector<uint32_t>& wanted) const;

 private:
  using Key = std::tuple<std::string, std::string, std::string, bool, bool>;
  struct Candidate {
    SymbolMatch match;
    Placement placement;
    Timing timing = Timing::kReturn;
    std::vector<ExitSite> exits;
    std::string reason;  // why it is not timed, or not probed
    bool usable = true;
  };
  struct Entry {
    std::vector<Candidate> candidates;
    std::string unread;  // why the file may hold more than was found
  };
  static Key get_key(const ProbeSpec& spec);
  const Entry* find_entry(const ProbeSpec& spec) const;
  static Candidate make_candidate(CodeMap& code, const ProbeSpec& spec, SymbolMatch match);

  std::map<Key, Entry> entries_;
};

// Whether a return probe on it could meet a C++ exception, which would abort the workload.
bool may_throw(const ProbeSpec& spec, const std::string& symbol);

}  // namespace gpuperf
