#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/probe/attacher.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

// Why a probe is ProbeState::kDisabled.
inline constexpr const char* kDisabledReason = "\"probe\": false in the configuration";

// What became of every configured function, file by file, for status and `gpuperfctl probes`.
//
// Thread: one. Owns its rows; `config` must outlive it. Bounded by functions x files.
// Not here: doing anything about it.
class ProbeLedger {
 public:
  // Function ids are positions in `config.probes` and in `functions`.
  ProbeLedger(const ProbeConfig& config, std::shared_ptr<const std::vector<Function>> functions,
              std::string_view mechanism);

  void note_outcome(int file_id, const std::string& library, const ProbeOutcome& outcome);
  void note_failed(int file_id, const std::string& library, uint32_t function_id,
                   std::string reason);
  void note_missing(const std::string& library, uint32_t function_id);
  // Every probe of the file is out.
  void fail_file(int file_id, const std::string& reason);
  void forget_file(int file_id);

  // In configuration order; a function found nowhere has one row that says why.
  std::shared_ptr<const ProbeReport> make_report(std::vector<Problem> problems) const;

 private:
  struct Placed {
    int file_id = 0;
    ProbeRow row;
  };
  ProbeRow make_row(uint32_t function_id) const;
  ProbeRow explain_unplaced(uint32_t function_id) const;

  const ProbeConfig& config_;
  const std::shared_ptr<const std::vector<Function>> functions_;
  const std::string mechanism_;
  std::map<uint32_t, std::vector<Placed>> placed_;        // by function
  std::map<uint32_t, std::set<std::string>> missing_in_;  // function -> names of files without it
};

}  // namespace gpuperf
