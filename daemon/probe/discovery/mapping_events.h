#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/high_mark.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Hears of every executable mapping made on the host, through the kernel's perf MMAP2 records: one
// software event per CPU, no cost to anything but an executable mmap, no polling.
//
// Owns its thread, which empties the rings (32 KiB per CPU) a hundred times a second at most and
// does nothing else: whoever takes the notices may be busy with a large file for seconds.
class MappingEvents {
 public:
  // Whether a mapping of that file name, as its process sees it, is of interest. Runs on the
  // thread, for every executable mapping made on the host.
  using Filter = std::function<bool(uint32_t pid, const std::string& path)>;
  // (pid in the initial pid namespace, file name: at most 4 KiB of it)
  using Notices = std::set<std::pair<uint32_t, std::string>>;
  static constexpr size_t kMaxWaiting = 4096;
  // Of one process, which is looked at as a whole once one waits.
  static constexpr size_t kMaxWaitingOfProcess = 256;

  // Any CPU at all must work; needs CAP_PERFMON (or kernel.perf_event_paranoid below 1).
  static Result<std::unique_ptr<MappingEvents>> start(Filter filter);
  ~MappingEvents();
  MappingEvents(const MappingEvents&) = delete;
  MappingEvents& operator=(const MappingEvents&) = delete;

  // Any thread. For what is mapped from now on.
  void set_filter(Filter filter);
  // Readable while notices wait or some were lost.
  int descriptor() const { return news_.get(); }
  // What waits, each once, and how many were lost: by a ring that was full, or because kMaxWaiting
  // were waiting. After a loss only a scan finds everything. Any thread.
  std::pair<Notices, uint64_t> take();
  // How many waited at most since the last call. Any thread.
  uint64_t take_highest() { return mark_.take(); }

 private:
  struct Ring;
  explicit MappingEvents(Filter filter);
  Status open();
  void run();
  void drain();

  Fd epoll_;
  Fd news_;  // eventfd
  Fd stop_;  // eventfd
  std::vector<std::unique_ptr<Ring>> rings_;
  Mutex mutex_;
  Filter filter_ ABSL_GUARDED_BY(mutex_);
  Notices waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, size_t> waiting_counts_ ABSL_GUARDED_BY(mutex_);  // by pid
  uint64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  HighMark mark_;  // of waiting_
  std::thread thread_;
};

}  // namespace gpuperf
