#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/snapshot.h"
#include "daemon/state/recent_processes.h"
#include "daemon/state/steps.h"

namespace gpuperf {

// Requests of processes with steps and of those in their sessions, from each part of the responses
// that they write.
//
// Parts less than kJoinNs apart are one: what servers write in pieces. Thread: loop only; `steps`
// and `drops` must outlive it. Bounds: kMaxProcesses, of which the one that exited first makes room
// for another; kMaxOpen a process. The parts of what does not fit are counted (kRequestsFull).
// kRecent and kSlow requests a process, the oldest leave. Memory: 250 KB a process.
class Requests {
 public:
  static constexpr size_t kMaxProcesses = 64;
  static constexpr size_t kMaxOpen = 1024;
  static constexpr size_t kRecent = 256;
  static constexpr size_t kSlow = 64;
  static constexpr uint64_t kJoinNs = 200'000;
  // A request is slow if its client waits for so many times the median of such waits, once there
  // were kSlowMinWaits.
  static constexpr uint64_t kSlowFactor = 10;
  static constexpr uint64_t kSlowMinWaits = 100;

  Requests(std::chrono::seconds keep_exited, const Steps& steps, DropCounters& drops)
      : steps_(steps), drops_(drops), keep_exited_(keep_exited) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  void set_keep_exited(std::chrono::seconds keep) { keep_exited_ = keep; }
  // The session of each process that makes steps.
  void set_sessions(std::map<ProcessKey, uint32_t> sessions) { sessions_ = std::move(sessions); }
  // After the steps that are complete before them.
  void apply(const std::vector<ResponsePart>& parts);
  void apply(const ProcessExited& exited, int64_t now_mono_ns);
  void expire(int64_t now_mono_ns);

  // Sets the requests.
  void fill(Snapshot& snapshot) const;

 private:
  using Open = std::map<uint64_t, Request>;  // by connection
  struct Process {
    RequestProcess row;  // but for `open`
    Open open;
    int64_t exited_mono_ns = 0;                          // 0 = it runs, as far as is known
    mutable std::shared_ptr<const RequestProcess> made;  // null = it has changed since
  };

  Process* find_or_add(const ProcessKey& key, int64_t now_mono_ns);
  void take(const ResponsePart& part);
  bool begin(Process& process, const ResponsePart& part);
  void add_wait(Process& process, const ResponsePart& part, Request& request);
  RequestWait describe_wait(const ResponsePart& part, uint64_t start_mono_ns) const;
  void end(Process& process, Open::iterator request);

  // Set once in the constructor.
  const Steps& steps_;
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  std::chrono::seconds keep_exited_;
  std::map<ProcessKey, uint32_t> sessions_;
  std::map<ProcessKey, Process> processes_;
  RecentProcesses exited_;
  RequestTotals totals_;
  uint64_t last_id_ = 0;
};

}  // namespace gpuperf
