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
#include "daemon/model/self_report.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/tensor_layout.h"
#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/attach/file_layouts.h"
#include "daemon/probe/attach/file_probes.h"
#include "daemon/probe/attach/hook_notes.h"
#include "daemon/probe/attach/in_flight.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/probe/attach/self_test.h"
#include "daemon/probe/discovery/file_search.h"
#include "daemon/probe/discovery/file_watch.h"
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

// The probe thread: keeps exactly the probes that the configuration and the budget want in the
// files that the search finds (FileSearch).
//
// Owns its thread between start and stop, the search and the probes. `programs`, `registry`,
// `layouts` and `drops` must outlive it. Between two files the thread hears of what else there is.
// A file that two full scans did not see any more loses its probes. Bounds: at most kMaxFoundFiles
// files, of which kMaxFilesOfUser belong to one user other than root; a problem counts those left
// out. A change of the configuration touches only what differs. Copies of the injected library are
// found likewise, and the notes of their launch hooks probed (HookNotes): those are no functions of
// the configuration.
class Prober {
 public:
  using OnReport = std::function<void(std::shared_ptr<const ProbeReport>)>;
  // A suspended function was probed from when to when, monotonic ns; twice the same where it is in
  // no file.
  using OnWindow =
      std::function<void(uint32_t function_id, int64_t begin_mono_ns, int64_t end_mono_ns)>;
  struct Listeners {
    OnReport on_report;
    OnWindow on_window;
  };

  // `listeners` are called on the probe thread, `search_listeners` where FileSearch says.
  Prober(ProbePlan plan, ProcFiles proc, FunctionRegistry& registry, TensorLayouts& layouts,
         Programs& programs, DropCounters& drops, Listeners listeners,
         FileSearch::Listeners search_listeners);
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  Status start();
  void stop();  // removes every probe
  // How many notices of mappings wait. Any thread, once started.
  void fill(SelfReport& report) {
    report.add(Bound::kMappingQueue, search_.take_highest_notices(), MappingEvents::kMaxWaiting);
  }

  // Any thread. `done` is called on the probe thread once the plan is in force in the files that
  // are named in the configuration or mapped by root's processes; others follow.
  void post_plan(ProbePlan plan, std::function<void()> done);
  // Any thread. Suspends these functions and resumes all others; but those that the configuration
  // says to sample stay suspended unless `is_sampling` is false. It is true until the first call.
  void post_suspended(std::set<uint32_t> function_ids, bool is_sampling);
  // Any thread. Probes a suspended function for so long. One window at a time.
  void post_window(uint32_t function_id, std::chrono::milliseconds length);
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
    uint64_t device = 0;                                   // FileIdentity::device
    std::vector<FileProbe> probes;                         // as they are
    std::map<uint32_t, std::vector<ProbePoint>> attached;  // by function
    std::map<uint32_t, std::string> refused;               // by function: why the kernel did
    bool stale = true;      // wanted, configuration or suspensions changed
    bool outdated = false;  // wanted is that of another configuration, until it is found again
    bool written = false;   // since: no probes until quiet_at
    Time quiet_at;
    int unseen_scans = 0;
  };
  struct Suspended {
    std::set<uint32_t> function_ids;
    bool is_sampling = true;
    bool operator==(const Suspended&) const = default;
  };
  // Of a suspended function.
  struct Window {
    uint32_t function_id = 0;
    bool is_open = true;  // it is probed
  };
  struct Commands {
    std::optional<ProbePlan> plan;
    std::vector<std::function<void()>> done;
    std::optional<Suspended> suspended;
    std::optional<std::pair<uint32_t, std::chrono::milliseconds>> window;
    std::optional<gpuperf_launch_reports> launch_reports;
  };

  Status watch(int descriptor);
  void run();
  void ask_for_scan();
  void wait_for_news();
  void wake();
  bool has_commands();
  void take_commands();
  void set_plan(ProbePlan plan);
  void renumber_probes(const ProbeConfig& before);
  void answer();
  void take_writes();
  bool note_written(int file_id);  // false: there is nothing to detach
  void take_news();
  void apply(const FileSearch::ScanBegan& began);
  void apply(FileSearch::FileOpened file);
  void apply(const FileSearch::RootHanded& handed);
  void apply(const FileSearch::AllHanded& handed);
  void explain_scan(const ScanReport& report);
  int find_file_id(const OpenedFile& opened);
  int take_file_id(const OpenedFile& opened);
  void forget_unseen();
  bool is_suspended(const FileProbe& probe) const;
  void run_window(uint32_t function_id, std::chrono::milliseconds length);
  bool is_in_window(uint32_t function_id) const;
  bool reconcile_window();
  void reconcile_all();
  void reconcile_stale(int file_id, File& file);
  void reconcile(int file_id, File& file);
  void learn_layout(int file_id, const File& file);
  void set_layout(int file_id, FileProbe& probe) const;
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
  FunctionRegistry& registry_;
  Programs& programs_;
  DropCounters& drops_;
  const Listeners listeners_;
  Fd wake_;
  Fd epoll_;
  std::optional<FileWatch> writes_;  // null where the kernel does not tell
  std::vector<Problem> problems_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  Commands commands_ ABSL_GUARDED_BY(mutex_);
  // Probe thread only.
  ProbePlan plan_;
  FileSearch search_;
  bool is_scan_asked_ = false;  // for files that were written to
  bool is_scanning_ = false;
  bool is_plan_searched_ = false;  // every process was looked at since the plan changed
  bool is_root_searched_ = false;  // those of root, at least
  std::vector<std::function<void()>> awaiting_root_;  // to be answered then
  Attacher attacher_;
  FileLayouts layouts_;
  HookNotes notes_;
  gpuperf_launch_reports launch_reports_ = GPUPERF_LAUNCHES_NONE;
  InFlightReader in_flight_;
  ProbeCosts costs_;
  bool calibrated_ = false;
  std::chrono::milliseconds retire_poll_{0};
  Suspended suspended_;
  std::optional<Window> window_;       // while one is run
  std::map<uint32_t, Function> told_;  // what the kernel was told of each function
  bool told_stacks_ = true;
  std::map<int, File> files_;  // by id
  std::map<FileIdentity, int> ids_;
  int next_own_id_ = -1;  // ids of files that cannot be watched; those of watches are positive
  std::vector<Problem> scan_problems_;
  Shares file_shares_;                    // by owner
  std::map<uint32_t, uint64_t> refused_;  // files of the last full scan, by owner
  uint64_t files_left_out_ = 0;           // by the last full scan
  bool changed_ = true;
  std::thread thread_;
};

}  // namespace gpuperf
