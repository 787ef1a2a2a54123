#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
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

// The probe thread: finds the files that hold configured functions, in whatever process maps them, and
// puts the probes in.
//
// Owns its thread between start and stop, and the probes. `programs` must outlive it. A file is looked
// at once; a process that maps a file probed already needs nothing, because probes act on the file.
// Files are found at start, at every executable mapping the kernel tells of, and by a full scan every
// minute; without those notices the scan runs every second and a problem says so.
// At most kMaxFiles files are probed; more are reported as failed probes.
class Prober {
 public:
  using OnReport = std::function<void(std::shared_ptr<const ProbeReport>)>;  // on the probe thread
  static constexpr size_t kMaxFiles = 4096;

  // Function ids are positions in `config.probes`.
  Prober(const ProbeConfig& config, std::vector<Function> functions, const Programs& programs,
         DropCounters& drops, OnReport on_report);
  ~Prober();

  Status start();
  void stop();  // removes every probe

 private:
  // One function in one file.
  struct Placed {
    uint32_t function_id = 0;
    ProbeRow row;
  };

  void run();
  bool wait_for_news();
  void scan_all();
  void scan_dirty();
  void take_files(const std::vector<FoundFile>& files);
  void probe_file(const FoundFile& file, const std::vector<uint32_t>& wanted);
  std::vector<uint32_t> find_wanted(const FoundFile& file);
  void add_row(uint32_t function_id, const std::string& library, ProbeState state,
               std::string reason);
  ProbeRow make_row(uint32_t function_id) const;
  ProbeRow explain_unplaced(uint32_t function_id) const;
  void publish_report();

  // Set once in the constructor.
  const ProbeConfig config_;
  const std::vector<Function> functions_;
  const Programs& programs_;
  DropCounters& drops_;
  const OnReport on_report_;
  std::atomic<bool> stopping_ = false;
  Fd wake_;
  // Probe thread only.
  LibraryFinder finder_;
  Attacher attacher_;
  std::unique_ptr<MappingEvents> mappings_;  // null where the kernel does not tell
  Fd epoll_;
  std::set<uint32_t> dirty_pids_;
  bool scan_needed_ = true;
  std::map<FileIdentity, std::set<uint32_t>> examined_;  // file -> functions looked for in it
  std::map<uint32_t, std::set<std::string>> missing_;    // function -> files without it
  std::vector<Placed> placed_;
  std::vector<Problem> problems_;
  bool changed_ = true;
  std::thread thread_;
};

}  // namespace gpuperf
