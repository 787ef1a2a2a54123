#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/attacher.h"
#include "daemon/probe/file_watch.h"
#include "daemon/probe/library_finder.h"
#include "daemon/probe/mapping_events.h"
#include "daemon/probe/probe_ledger.h"
#include "daemon/probe/probe_spec.h"
#include "daemon/probe/programs.h"

namespace gpuperf {

// The probe thread: finds the files that hold configured functions, in whatever process maps them,
// and puts the probes in.
//
// Owns its thread between start and stop, and the probes. `programs` and `drops` must outlive it. A
// file is looked at once; a process that maps a file probed already needs nothing, because probes
// act on the file. Files are found at start, at every executable mapping the kernel tells of, and
// by a full scan every minute; without those notices the scan runs every 0.8 s and a problem says
// so. Bounds: at most kMaxFoundFiles files; a problem counts those left out. Not here: taking
// probes out of files nobody maps any more, or that are written to.
class Prober {
 public:
  using OnReport = std::function<void(std::shared_ptr<const ProbeReport>)>;  // on the probe thread

  // Function ids are positions in `config.probes`.
  Prober(const ProbeConfig& config, std::shared_ptr<const std::vector<Function>> functions,
         const Programs& programs, DropCounters& drops, OnReport on_report);
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  Status start();
  void stop();  // removes every probe

 private:
  using Time = std::chrono::steady_clock::time_point;
  // A file looked at, whatever was found in it.
  struct File {
    std::string path;
    std::set<uint32_t> examined;  // functions looked for in it
    bool written = false;         // since: no probes until quiet_at
    Time quiet_at;
  };

  Status watch(int descriptor);
  void run();
  Time get_next_wake() const;
  void wait_for_news(Time until);
  void take_mappings();
  void take_writes();
  void scan_all();
  void explain_scan(const ScanReport& report);
  void scan_dirty();
  void take_files(const std::vector<FoundFile>& files);
  bool take_file(const FoundFile& found);
  int find_file_id(const OpenedFile& opened);
  void on_written(int file_id);
  void probe_file(const ProbedFile& file, const std::vector<uint32_t>& wanted);

  // Set once, before the thread starts.
  const ProbeConfig config_;
  const std::shared_ptr<const std::vector<Function>> functions_;
  DropCounters& drops_;
  const OnReport on_report_;
  Fd wake_;
  Fd epoll_;
  std::unique_ptr<MappingEvents> mappings_;  // null where the kernel does not tell
  std::optional<FileWatch> writes_;          // likewise
  std::vector<Problem> problems_;
  std::atomic<bool> stopping_ = false;
  // Probe thread only.
  LibraryFinder finder_;
  Attacher attacher_;
  ProbeLedger ledger_;
  Time next_scan_;
  std::set<std::pair<uint32_t, std::string>> dirty_;  // (pid, path) of mappings that concern us
  std::map<int, File> files_;                         // by id
  std::map<FileIdentity, int> ids_;
  int next_own_id_ = -1;  // ids of files that cannot be watched; those of watches are positive
  std::set<std::string> unopened_;  // files already complained about
  std::vector<Problem> scan_problems_;
  uint64_t files_left_out_ = 0;  // by the last full scan
  bool changed_ = true;
  std::thread thread_;
};

}  // namespace gpuperf
