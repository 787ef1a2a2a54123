#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/base/fd.h"
#include "daemon/base/mutex.h"
#include "daemon/base/proc_files.h"
#include "daemon/base/result.h"
#include "daemon/model/drops.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/discovery/library_finder.h"
#include "daemon/probe/discovery/mapping_events.h"

namespace gpuperf {

// The search thread: finds the files that hold configured functions, in whatever process maps them,
// opens them and hands them on one by one. Waiting for a process delays nobody but the search.
//
// Owns its threads between start and stop. `drops` must outlive it. Files are found at start, at
// every executable mapping the kernel tells of, and by a full scan every minute; without those
// notices the scan runs every 0.8 s and a problem says so. Root's processes are looked at first,
// and of the files found those of root's processes are handed on first, then those of each user in
// turn. A process whose mappings are not read in time is looked at later. Bounds: at most
// kMaxFoundFiles files wait to be opened; one opened waits to be taken.
class FileSearch {
 public:
  // What is looked for.
  struct Query {
    ProbeConfig config;
    std::vector<std::string> further_globs;  // of files that are wanted without any probe
  };

  struct ScanBegan {};
  struct FileOpened {
    FoundFile found;
    OpenedFile opened;
  };
  // Of a full scan: every file of the configuration's own and of root's processes was handed on.
  struct RootHanded {};
  // Nothing found waits any more.
  struct AllHanded {
    std::optional<ScanReport> scan;  // of the full scan that this ends
    bool is_all_read = false;        // no process is left that was not read in time
  };
  using News = std::variant<ScanBegan, FileOpened, RootHanded, AllHanded>;

  struct Listeners {
    // A process that maps a file with configured functions, reported again and again. Search
    // thread.
    std::function<void(uint32_t pid)> on_watched;
    // Every executable mapping made on the host, on the thread that hears of them.
    std::function<void(uint32_t pid, const std::string& path)> on_mapping;
  };

  FileSearch(ProcFiles proc, Query query, DropCounters& drops, Listeners listeners);
  ~FileSearch();
  FileSearch(const FileSearch&) = delete;
  FileSearch& operator=(const FileSearch&) = delete;

  Status start();
  void stop();
  // What keeps it from hearing of mappings; set once started.
  const std::vector<Problem>& problems() const { return problems_; }

  // Any thread. News of what was looked for before is not taken any more.
  void post_query(Query query);
  // Any thread. A full scan at once, or after a pause that grows with what a scan takes.
  void post_scan(bool after_pause);
  // How many notices of mappings waited at most since the last call. Any thread, once started.
  uint64_t take_highest_notices() { return mappings_ ? mappings_->take_highest() : 0; }
  // Readable while news waits.
  int descriptor() const { return news_ready_.get(); }
  // One thread. Null = none waits.
  std::optional<News> take();

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Commands {
    std::optional<Query> query;
    bool scan_now = false;
    bool scan_later = false;
  };
  // News of the query that was in force when it was found.
  struct Told {
    uint64_t query = 0;
    News news;
  };

  void run();
  void take_commands();
  bool is_interrupted();
  void set_finder(const Query& query);
  MappingEvents::Filter make_filter() const;
  void wait_for_news(Time until);
  void take_mappings();
  void scan_all();
  void hand_root(const ScanReport& report);
  void scan_dirty();
  void scan_put_off();
  void put_off(uint32_t pid);
  void add_pending(std::vector<FoundFile> files);
  void hand_pending();
  void hand_next();
  void open_and_hand(const FoundFile& found);
  void hand(News news);
  void wake();

  // Set once, before the thread starts.
  const ProcFiles proc_;
  DropCounters& drops_;
  const Listeners listeners_;
  Fd wake_;
  Fd epoll_;
  Fd news_ready_;
  std::unique_ptr<MappingEvents> mappings_;  // null where the kernel does not tell
  std::vector<Problem> problems_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> query_number_ = 0;
  BoundedQueue<Told> news_{1};  // so that a file of root's comes behind one at most
  Mutex mutex_;
  Commands commands_ ABSL_GUARDED_BY(mutex_);
  // Search thread only.
  std::shared_ptr<LibraryFinder> finder_;
  uint64_t query_ = 0;  // number of the one in force
  Time next_scan_;
  Time earliest_scan_;            // after a loss of notices: so that scans are not all it does
  MappingEvents::Notices dirty_;  // mappings that concern us, not looked at yet
  // Processes not read in time, and when they are looked at again; those that came late last.
  std::vector<uint32_t> put_off_;
  Time put_off_until_;
  // Found and not opened yet, by user.
  std::map<uint32_t, std::map<MappedInode, FoundFile>> pending_;
  uint32_t last_user_ = 0;          // whose turn it was
  std::optional<ScanReport> scan_;  // whose files are handed on
  bool is_idle_told_ = true;
  std::set<std::string> unopened_;  // files already complained about
  std::thread thread_;
};

}  // namespace gpuperf
