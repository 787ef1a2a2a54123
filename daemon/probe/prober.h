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

#include "bpf/hook_notes.h"
#include "daemon/base/fd.h"
#include "daemon/base/mutex.h"
#include "daemon/base/proc_files.h"
#include "daemon/base/result.h"
#include "daemon/base/shares.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/attach/file_probes.h"
#include "daemon/probe/attach/hook_notes.h"
#include "daemon/probe/attach/in_flight.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/probe/attach/self_test.h"
#include "daemon/probe/discovery/file_watch.h"
#include "daemon/probe/discovery/library_finder.h"
#include "daemon/probe/discovery/mapping_events.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

// Each costs two descriptors, and up to a tenth of a second to take its probes out.
inline constexpr size_t kMaxFilesOfUser = 256;

// What the prober is to do; replaced as a whole.
struct ProbePlan {
  ProbeConfig config;
  uint64_t default_threshold_ns = 0;
  bool stacks = true;        // slow calls carry their stack
  bool launch_hooks = true;  // launches may be counted by hooks in the processes
};

// The probe thread: finds the files that hold configured functions, in whatever process maps them,
// and keeps exactly the probes in them that the configuration and the budget want.
//
// Owns its thread between start and stop, and the probes. `programs`, `registry` and `drops` must
// outlive it. Files are found at start, at every executable mapping the kernel tells of, and by a
// full scan every minute; without those notices the scan runs every 0.8 s and a problem says so. A
// file that two full scans did not see any more loses its probes. Files are looked at one by one,
// those of root's processes first and then those of each user in turn; between them the thread
// hears of what else there is. A process whose mappings are not read in time is looked at later.
// Bounds: at most kMaxFoundFiles files, of which kMaxFilesOfUser belong to one user other than
// root; a problem counts those left out. A change of the configuration touches only what differs.
// Copies of the injected library are found likewise, and the notes of their launch hooks probed
// (HookNotes): those are no functions of the configuration.
class Prober {
 public:
  struct Listeners {
    std::function<void(std::shared_ptr<const ProbeReport>)> on_report;  // on the probe thread
    // A process that maps a file with configured functions, told of again and again; likewise.
    std::function<void(uint32_t pid)> on_watched;
    // Every executable mapping made on the host, on the thread that hears of them.
    std::function<void(uint32_t pid, const std::string& path)> on_mapping;
  };

  Prober(ProbePlan plan, ProcFiles proc, FunctionRegistry& registry, Programs& programs,
         DropCounters& drops, Listeners listeners);
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  Status start();
  void stop();  // removes every probe

  // Any thread. `done` is called on the probe thread once the plan is in force.
  void post_plan(ProbePlan plan, std::function<void()> done);
  // Any thread. These functions are taken out, all others put in again.
  void post_suspended(std::set<uint32_t> function_ids);
  // Any thread. Which launches the hooks in injected processes report.
  void post_launch_reports(gpuperf_launch_reports wanted);
  // Any thread. `done` is called on the probe thread once all that was posted before is in force.
  void post_done(std::function<void()> done);

 private:
  using Time = std::chrono::steady_clock::time_point;
  // A file looked at, whatever was found in it.
  struct File {
    std::string path;
    Fd fd;  // kept open: links are made anew when functions leave
    FileProbes known;
    std::set<uint32_t> wanted;  // positions in the configuration, by every path it was seen at
    uint32_t owner_uid = 0;
    std::vector<FileProbe> probes;                         // as they are
    std::map<uint32_t, std::vector<ProbePoint>> attached;  // by function
    std::map<uint32_t, std::string> refused;               // by function: why the kernel did
    bool stale = true;      // wanted, configuration or suspensions changed
    bool outdated = false;  // wanted is that of another configuration, until it is found again
    bool written = false;   // since: no probes until quiet_at
    Time quiet_at;
    int unseen_scans = 0;
  };
  struct Commands {
    std::optional<ProbePlan> plan;
    std::vector<std::function<void()>> done;
    std::optional<std::set<uint32_t>> suspended;
    std::optional<gpuperf_launch_reports> launch_reports;
  };

  Status watch(int descriptor);
  void run();
  Time get_next_wake() const;
  void wait_for_news(Time until);
  void wake();
  bool has_commands();
  void take_commands();
  void set_finder();
  MappingEvents::Filter make_filter() const;
  void take_mappings();
  void take_writes();
  void on_written(int file_id);
  void scan_all();
  void explain_scan(const ScanReport& report);
  void scan_dirty();
  void put_off(uint32_t pid);
  void scan_put_off();
  void add_pending(std::vector<FoundFile> files);
  void take_pending(Time until);
  void finish_scan();
  void take_file(const FoundFile& found);
  int find_file_id(const OpenedFile& opened);
  int take_file_id(const OpenedFile& opened);
  void forget_unseen();
  void reconcile_all();
  void reconcile_stale(int file_id, File& file);
  void reconcile(int file_id, File& file);
  void change_points(const ProbedFile& probed, File& file,
                     const std::map<uint32_t, std::vector<ProbePoint>>& desired);
  void tell_functions(const File& file);
  void tell_costs(const File& file);
  void tell_hooked_functions();
  void probe_notes(int file_id, const File& file);
  void close_retired();
  void calibrate_once();
  std::shared_ptr<const ProbeReport> make_report() const;

  // Set once, before the thread starts.
  const ProcFiles proc_;
  FunctionRegistry& registry_;
  Programs& programs_;
  DropCounters& drops_;
  const Listeners listeners_;
  Fd wake_;
  Fd epoll_;
  std::unique_ptr<MappingEvents> mappings_;  // null where the kernel does not tell
  std::optional<FileWatch> writes_;          // likewise
  std::vector<Problem> problems_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  Commands commands_ ABSL_GUARDED_BY(mutex_);
  // Probe thread only.
  ProbePlan plan_;
  std::shared_ptr<LibraryFinder> finder_;
  Attacher attacher_;
  HookNotes notes_;
  gpuperf_launch_reports launch_reports_ = GPUPERF_LAUNCHES_NONE;
  InFlightReader in_flight_;
  ProbeCosts costs_;
  bool calibrated_ = false;
  std::chrono::milliseconds retire_poll_{0};
  std::set<uint32_t> suspended_;
  std::map<uint32_t, Function> told_;  // what the kernel was told of each function
  bool told_stacks_ = true;
  Time next_scan_;
  Time earliest_scan_;            // after a loss of notices: so that scans are not all it does
  MappingEvents::Notices dirty_;  // mappings that concern us, not looked at yet
  // Processes not read in time, and when they are looked at again; those that came late last.
  std::vector<uint32_t> put_off_;
  Time put_off_until_;
  // Found and not looked at yet, by user.
  std::map<uint32_t, std::map<MappedInode, FoundFile>> pending_;
  uint32_t last_user_ = 0;          // whose turn it was
  std::optional<ScanReport> scan_;  // whose files are looked at
  std::map<int, File> files_;       // by id
  std::map<FileIdentity, int> ids_;
  int next_own_id_ = -1;  // ids of files that cannot be watched; those of watches are positive
  std::set<std::string> unopened_;  // files already complained about
  std::vector<Problem> scan_problems_;
  Shares file_shares_;                    // by owner
  std::map<uint32_t, uint64_t> refused_;  // files of the last full scan, by owner
  uint64_t files_left_out_ = 0;           // by the last full scan
  bool changed_ = true;
  std::thread thread_;
};

}  // namespace gpuperf
