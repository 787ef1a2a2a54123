#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/model/drops.h"
#include "daemon/model/function.h"
#include "daemon/model/self_report.h"
#include "daemon/owner/cri.h"

namespace gpuperf {

// Names of pods by container: asked of the container runtime once, then remembered.
//
// Owns its thread, which alone asks and may wait a second for each answer; `drops` must outlive it.
// Callers never wait. Bounds: `max_names` containers are remembered, the oldest are forgotten; when
// so many wait to be asked about, a further one is left unnamed and counted. While the runtime
// cannot be asked (no Kubernetes node, a socket not mounted, an error), nothing is asked for
// `retry_after`, and containers stay unnamed: their pod's uid is shown.
class PodNames {
 public:
  using Ask = std::function<Result<std::optional<PodName>>(const std::string& container)>;
  struct Options {
    size_t max_names = 4'096;  // a node runs 250 pods at most by default; this is two days of churn
    std::chrono::milliseconds retry_after{30'000};
  };
  enum class State {
    kNamed,
    kAsked,    // the answer comes within a second or two: ask again
    kUnnamed,  // no answer, or none to be had now
  };

  PodNames(Ask ask, DropCounters& drops, Options options);
  PodNames(Ask ask, DropCounters& drops) : PodNames(std::move(ask), drops, Options()) {}
  ~PodNames();
  PodNames(const PodNames&) = delete;
  PodNames& operator=(const PodNames&) = delete;

  // Fills in pod and namespace where they are known, and has them asked for otherwise. An owner
  // without a pod is left alone: kUnnamed. Any thread.
  State name(Owner& owner);
  // How many wait to be asked about. Any thread.
  void fill(SelfReport& report) {
    const MutexLock lock(mutex_);
    report.add(Bound::kPodQueue, waiting_.size(), options_.max_names);
  }

 private:
  struct Entry {
    bool answered = false;
    std::optional<PodName> name;  // empty = has no pod
  };
  void run();
  void forget_oldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Ask ask_;
  DropCounters& drops_;
  const Options options_;
  Mutex mutex_;
  ConditionVariable wake_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> order_ ABSL_GUARDED_BY(mutex_);    // of entries_, oldest first
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);  // of entries_, to be asked about
  std::chrono::steady_clock::time_point quiet_until_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace gpuperf
