#pragma once

#include <atomic>
#include <cstdint>

namespace gpuperf::testing {

// Says which of many steps is to fail. Thread: any.
class FailingStep {
 public:
  // The n-th step from now on (1 = the next), and with `for_ever` all after it.
  void fail(uint64_t nth, bool for_ever) {
    has_failed_ = false;
    for_ever_ = for_ever;
    left_ = static_cast<int64_t>(nth);
  }
  void heal() {
    left_ = 0;
    for_ever_ = false;
  }
  bool has_failed() const { return has_failed_; }  // since `fail`

  // Called at each step. True: this one is to fail.
  bool is_now() {
    if (has_failed_ && for_ever_) return true;
    if (left_ == 0 || --left_ != 0) return false;
    has_failed_ = true;
    return true;
  }

 private:
  std::atomic<int64_t> left_ = 0;  // until one fails; 0 = none does
  std::atomic<bool> for_ever_ = false;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace gpuperf::testing
