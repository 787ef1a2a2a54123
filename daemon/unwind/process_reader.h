#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "daemon/base/byte_lru.h"
#include "daemon/base/mutex.h"
#include "daemon/base/proc_files.h"
#include "daemon/base/result.h"
#include "daemon/base/token_bucket.h"
#include "daemon/base/worker_pool.h"
#include "daemon/unwind/memory_message.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {

// Reads the memory of living processes, hostile ones too, and those of their files under /proc that
// wait for it.
//
// A process can make such a read take for ever, by pages that a FUSE server of its user has to
// deliver. So a worker reads (base/worker_pool.h), and is left behind when late; no thread of the
// daemon ever waits for the memory of another process. See docs/decisions/0024-process-reader.md.
//
// Thread: any. Must outlive the readers and files it makes.
//
// Bounds: one reader waits for `timeout` in all, and one file for `file_timeout`. A user whose
// process took longer is not read from for `min_pause`, twice as long each time, up to `max_pause`;
// nor, for `strangers_pause`, is any of whom nothing was read in time yet: so many users do not
// take turns. Of one user, what each read takes beyond `free_wait`, or each file beyond
// `free_file_wait`, may be `waiting_us_per_second` together. What is left out so is told to
// `on_late`, once for each reader and file.
class ProcessReader {
 public:
  enum class Kind { kMemory, kFile };
  struct Options {
    std::string proc_root = "/proc";
    // Reading a stack takes a millisecond or two, some 100 where a few of its pages come from a
    // disk.
    std::chrono::milliseconds timeout{200};
    // 65,530 mappings, the most by default, are read in some 25 ms.
    std::chrono::milliseconds file_timeout{500};
    std::chrono::milliseconds min_pause{2'000};
    std::chrono::milliseconds max_pause{300'000};
    std::chrono::milliseconds strangers_pause{2'000};
    // A page that is in memory is read in some 20 us.
    std::chrono::microseconds free_wait{200};
    uint64_t waiting_us_per_second = 500'000;
    // Some 50 us for maps of 100 lines, and twice the waiting for a CPU.
    std::chrono::microseconds free_file_wait{2'000};
    std::function<void(Kind)> on_late = [](Kind) {};
  };

  explicit ProcessReader(Options options);
  ProcessReader(const ProcessReader&) = delete;
  ProcessReader& operator=(const ProcessReader&) = delete;

  // For one stack, or whatever else is read at one time: what was read once is not read again. The
  // caller knows that the pid is still the process it means.
  ReadMemory make_reader(uint32_t pid);
  // All of them; each waits for itself.
  ProcFiles make_files();
  // False: its user, or that of a process that has gone, is to wait.
  bool may_read(uint32_t pid);
  void reap();

  // Workers that were killed because they were late, and do not end.
  size_t count_stuck() const { return workers_.count_dying() + takers_.count_dying(); }

 private:
  friend class MemoryReading;
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  struct User {
    TimePoint retry_at;
    Duration pause{0};
    TokenBucket waiting;  // in us
  };

  bool may_read_user(uint32_t uid);
  // The user of the process, who may be read from; a worker is ready.
  Result<uint32_t> begin(uint32_t pid, Kind kind, WorkerPool& workers);
  Result<WorkerMessage> ask_for_file(uint32_t pid, WorkerPool& workers, const std::string& request);
  Result<BoundedText> read_maps(uint32_t pid, size_t max_bytes);
  Result<BoundedText> read_environment(uint32_t pid, size_t max_bytes);
  Result<Fd> take_mapped(uint32_t pid, const std::string& range);
  User& find_or_add(uint32_t uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void on_answered(uint32_t uid, Duration charged);
  void on_late(uint32_t uid, Kind kind);

  // Set once in the constructor.
  const Options options_;
  WorkerPool workers_;  // read memory and maps
  WorkerPool takers_;   // take mapped files
  Mutex mutex_;
  ByteLru<uint32_t, User> users_ ABSL_GUARDED_BY(mutex_);  // of whom something was read
  TimePoint strangers_retry_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuperf
