#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
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
#include "daemon/probe/library_finder.h"
#include "daemon/probe/mapping_events.h"
#include "daemon/probe/probe_spec.h"
#include "daemon/probe/programs.h"

namespace gpuperf {

// Why a probe is ProbeState::kDisabled.
inline constexpr const char* kDisabledReason = "\"probe\": false in the configuration";

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
  void run();
  void wait_for_news(std::chrono::milliseconds at_most);
  void scan_all();
  void scan_dirty();
  void take_files(const std::vector<FoundFile>& files);
  void probe_file(const std::string& path, int fd, const std::vector<uint32_t>& wanted);
  void add_row(uint32_t function_id, const std::string& library, ProbeState state,
               std::string reason, uint64_t offset_bytes = 0);
  ProbeRow make_row(uint32_t function_id) const;
  ProbeRow explain_unplaced(uint32_t function_id) const;
  void publish_report();

  // Set once, before the thread starts.
  const ProbeConfig config_;
  const std::shared_ptr<const std::vector<Function>> functions_;
  const Programs& programs_;
  DropCounters& drops_;
  const OnReport on_report_;
  Fd wake_;
  Fd epoll_;
  std::unique_ptr<MappingEvents> mappings_;  // null where the kernel does not tell
  std::vector<Problem> problems_;
  std::atomic<bool> stopping_ = false;
  // Probe thread only.
  LibraryFinder finder_;
  Attacher attacher_;
  bool scan_needed_ = true;
  std::set<std::pair<uint32_t, std::string>> dirty_;  // (pid, path) of new mappings that concern us
  std::map<FileIdentity, std::set<uint32_t>> examined_;  // file -> functions looked for in it
  std::set<std::string> unopened_;                       // files already complained about
  std::map<uint32_t, std::set<std::string>> missing_;    // function -> names of files without it
  std::map<uint32_t, std::vector<ProbeRow>> rows_;       // function -> where it was found
  std::vector<Problem> scan_problems_;
  uint64_t files_left_out_ = 0;  // by the last full scan
  uint32_t files_ = 0;
  bool changed_ = true;
  std::thread thread_;
};

}  // namespace gpuperf
