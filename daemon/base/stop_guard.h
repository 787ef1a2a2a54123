#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "daemon/base/mutex.h"

namespace gpuperf {

// Ends the process where stopping it hangs, because a thread does not come back from what it was at
// when the stop began.
//
// Thread: one of its own, for as long as this lives: from the beginning of the stop to its end.
// What was handed to the store by then is written: its thread goes on meanwhile.
class StopGuard {
 public:
  struct Options {
    // Then a thread that is still at what it was at is taken to hang. The whole stop is to take 2
    // s.
    std::chrono::milliseconds patience{1'500};
    // Work that may take longer than this by itself is waited for: captures, probes.
    std::chrono::seconds max_limit{30};
    // Then the process ends whatever it waits for.
    std::chrono::milliseconds last{20'000};
    std::function<void(const std::string& why)> end_process;  // does not return, but in tests
  };
  // Logs why and ends the process with status 0.
  static void end_process(const std::string& why);

  explicit StopGuard(Options options);
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  void run();
  bool wait_until(TimePoint deadline);  // false: the stop has come to its end
  std::string find_hanging() const;

  // Set once in the constructor.
  const Options options_;
  const TimePoint begin_ = std::chrono::steady_clock::now();
  Mutex mutex_;
  ConditionVariable changed_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpuperf
