#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/duration_counts.h"
#include "daemon/base/high_mark.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/model/function.h"
#include "daemon/model/self_report.h"
#include "daemon/store/slow_call_database.h"
#include "daemon/store/sqlite_connection.h"
#include "daemon/store/stored_call.h"

namespace gpuperf {

// Keeps slow calls on disk: writes them on a thread of its own, finds them from any.
//
// Thread: every method from any. Owns the store thread, which ends with it; `clock` must outlive
// it. Processes take turns. Bounds: at most `queue_calls` wait to be written, and as many again of
// processes of which few do; a post beyond that answers false, and the caller counts it.
// SlowCallDatabase bounds the file. Destroying it writes what still waits. When the disk fails:
// calls are answered as not stored, at once; every `retry_interval` a batch is tried again. A file
// found damaged while writing, or removed, is replaced by a new one. A store that could not be
// opened at the start stays without one: ids given since might be in it already. Not here: what is
// slow, what a body means, the calls of which the store has no room (retention).
class SlowCallStore {
 public:
  struct Options {
    SlowCallDatabase::Options database;
    size_t queue_calls = 4096;
    std::chrono::milliseconds retry_interval{5000};
  };
  static constexpr std::chrono::seconds kPruneInterval{60};
  static constexpr std::chrono::seconds kSyncInterval{1};  // what a power cut may cost

  // Never fails: `problem` says why there is no store.
  static std::unique_ptr<SlowCallStore> start(const Options& options, const Clock& clock);
  ~SlowCallStore();
  SlowCallStore(const SlowCallStore&) = delete;
  SlowCallStore& operator=(const SlowCallStore&) = delete;

  // `make` and then `done` are called on the store thread, in the order of the posts of `process`;
  // `make` is not when nothing can be written. stored = it is in the file, and there after a kill
  // -9. false = the queue is full, and neither is called.
  bool post_write(const ProcessKey& process, std::function<StoredCall()> make,
                  std::function<void(bool stored)> done);

  // kUnavailable while there is no store. Waits for other queries, not for writes.
  Result<std::vector<StoredCall>> query(const StoreQuery& query);
  Result<std::optional<StoredCall>> find(uint64_t id);

  // The highest id the store held at the start; 0 = none.
  uint64_t last_id() const { return last_id_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  // How full the queue and the file are, and how long writes take.
  void fill(SelfReport& report);
  // What failed on what, why, and what to do; empty = all is well.
  std::string problem() const;

 private:
  struct Post {
    std::function<StoredCall()> make;
    std::function<void(bool)> done;
  };

  SlowCallStore(const Options& options, const Clock& clock);
  Status open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_);
  Status begin_anew(const Status& damage);

  void run();
  std::optional<std::vector<Post>> take_posts();
  std::chrono::milliseconds get_wait() const;
  bool is_stopping() const;
  // Whether there is a file to write to, and it is not too soon after a failure.
  bool may_try();
  void write_posts(std::span<const Post> posts);
  bool write_calls(std::span<const StoredCall> calls);
  void prune_when_due();
  void sync_when_due();
  void note_stored();
  void note_failure(const Status& status);

  // Set once in the constructor and `start`.
  const Options options_;
  const Clock& clock_;
  uint64_t last_id_ = 0;
  bool opened_ = false;  // at the start
  // Store thread only.
  std::unique_ptr<SlowCallDatabase> database_;  // null = not open
  bool failing_ = false;                        // since a failure nothing was written
  int64_t retry_mono_ns_ = 0;                   // while failing_: not before
  bool pruning_ = false;                        // there is more to prune
  int64_t prune_mono_ns_ = 0;                   // when it is due, unless pruning_
  std::optional<int64_t> sync_mono_ns_;         // when it is due; none = nothing was written
  Mutex read_mutex_;
  std::unique_ptr<SqliteConnection> reader_ ABSL_GUARDED_BY(read_mutex_);  // null = no store
  mutable Mutex mutex_;
  ConditionVariable wake_;
  std::map<ProcessKey, std::deque<Post>> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string problem_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::atomic<uint64_t> used_bytes_ = 0;
  HighMark queued_;  // of waiting_count_
  DurationCounts writes_, syncs_;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace gpuperf
