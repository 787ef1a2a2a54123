#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/probe/attach/file_probes.h"
#include "daemon/probe/attach/self_test.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

// What the report needs to know of one file.
struct FileReport {
  std::string_view path;
  std::span<const FileProbe> probes;                    // as they are
  std::vector<std::pair<size_t, std::string>> missing;  // FileProbes::list_missing
};

struct ReportInput {
  const ProbeConfig& config;
  const FunctionList& functions;
  std::string_view mechanism;
  uint64_t default_threshold_ns = 0;  // of entries that are in no file yet
  ProbeCosts costs;                   // zeros while not calibrated
  std::vector<FileReport> files;
  std::vector<Problem> problems;
};

// What became of every configured function, file by file, in configuration order; an entry found
// nowhere has one row that says why.
std::shared_ptr<const ProbeReport> make_probe_report(const ReportInput& input);

// The rows of a daemon that cannot probe at all.
ProbeReport explain_no_probes(const ProbeConfig& config, std::string_view reason);

}  // namespace gpuperf
