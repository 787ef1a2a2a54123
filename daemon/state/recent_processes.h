#pragma once

#include <cstddef>
#include <deque>
#include <set>

#include "daemon/base/thread_checker.h"
#include "daemon/model/function.h"

namespace gpuperf {

// Remembers the processes added last, so that what still comes in about a process that has exited
// is not taken for a new one, which would never exit again.
//
// Thread: loop only. Bounds: 4,096 processes, 330 KB; stragglers come within a few read intervals
// of the exit, and that covers them even where a thousand processes exit a second.
class RecentProcesses {
 public:
  static constexpr size_t kMax = 4'096;

  void add(const ProcessKey& process) {
    loop_thread_.check();
    if (!known_.insert(process).second) return;
    order_.push_back(process);
    if (order_.size() <= kMax) return;
    known_.erase(order_.front());
    order_.pop_front();
  }
  bool contains(const ProcessKey& process) const { return known_.contains(process); }

 private:
  ThreadChecker loop_thread_;
  std::set<ProcessKey> known_;
  std::deque<ProcessKey> order_;  // oldest first
};

}  // namespace gpuperf
