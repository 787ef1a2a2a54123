#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/base/shares.h"

namespace gpuperf {

// What looking for threads in other pid namespaces, and remembering them, may cost, of all sessions
// together: reading /proc/PID/task of a process with thousands of threads takes tens of
// milliseconds.
//
// Thread: one.
class ThreadScanBudget {
 public:
  static constexpr uint64_t kMaxRemembered = 65'536;  // threads of all sessions: 3 MB

  bool may_scan(int64_t now_mono_ns) const { return now_mono_ns >= next_scan_mono_ns_; }
  void note_scan(int64_t start_mono_ns, int64_t end_mono_ns) {
    next_scan_mono_ns_ = end_mono_ns + kShare * (end_mono_ns - start_mono_ns);
  }
  // Of threads that are remembered.
  Shares& places() { return places_; }

 private:
  static constexpr int64_t kShare = 50;  // 2 % of the thread's time
  int64_t next_scan_mono_ns_ = 0;
  Shares places_{{.total = kMaxRemembered, .kept_for_root = kMaxRemembered / 8}};
};

// The daemon's ids of one process's threads, by what gettid() says in that process.
//
// Thread: one. The budget must outlive it. In the daemon's own pid namespace they are the same, and
// believed, also of threads that have gone: a process that lies mixes up its own launches only. In
// another, a thread is looked for once and remembered, by a scan of all threads of the process,
// within the budget. What cannot be told, or is past a bound, is 0.
class ThreadIds {
 public:
  static constexpr size_t kMaxThreads = 8'192;  // remembered; then all are forgotten
  static constexpr size_t kMaxScanned = 8'192;  // of one process, in one scan
  // Looks of one message at most: one with a new id in each record must not cost a system call
  // each.
  static constexpr uint32_t kLooksPerMessage = 64;

  ThreadIds(std::string_view proc_root, uint32_t pid, bool is_namespace_ours,
            ThreadScanBudget& budget, uint32_t uid = 0);
  ~ThreadIds() { forget(); }
  ThreadIds(const ThreadIds&) = delete;
  ThreadIds& operator=(const ThreadIds&) = delete;

  void begin_message() { looks_ = 0; }
  uint32_t find(uint32_t inner_tid);

 private:
  void scan();
  void remember(uint32_t inner_tid, uint32_t tid);  // where there is a place
  void forget();

  // Set once in the constructor.
  const std::string tasks_;  // "/proc/71/task"
  const bool is_namespace_ours_;
  const Shares::Holder holder_;
  ThreadScanBudget& budget_;
  std::unordered_map<uint32_t, uint32_t> known_;  // by inner id; 0 = looked for and gone
  uint32_t looks_ = 0;
};

}  // namespace gpuperf
