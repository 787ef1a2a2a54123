#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "daemon/base/thread_checker.h"
#include "daemon/model/gpu_rows.h"
#include "daemon/model/trace_event.h"

namespace gpuperf {

// What CUPTI's records cost a launch, measured in the process itself: each window of recording is
// an experiment. The time from one kernel launch to the next within it, as its records have it, is
// compared with that in the readings before and after, as launch hooks counted there. So it is what
// the process really loses: nothing where it runs ahead of a busy GPU.
//
// Windows around which the load changed by more than kSteady say nothing and are left out.
//
// Thread: loop only; times are passed in. Bounds: kReadings readings and kWindows windows of each
// process whose launches hooks count.
class LaunchCosts {
 public:
  using Cost = LaunchCost;
  struct Window {
    int64_t begin_mono_ns = 0;  // when it was asked for
    int64_t end_mono_ns = 0;
    // Of the kernel launches that were recorded.
    uint64_t launches = 0;
    uint64_t first_mono_ns = 0;
    uint64_t last_mono_ns = 0;
  };
  // What fewer windows say is chance.
  static constexpr size_t kWindowsMin = 3;
  static constexpr size_t kWindows = 16;
  static constexpr size_t kReadings = 8;
  static constexpr double kSteady = 1.25;
  // Recording ends some time after it was asked to.
  static constexpr int64_t kEndingNs = 500'000'000;

  // Kernel launches that hooks counted since the last reading.
  void apply(const ProcessKey& process, uint64_t launches);
  // All of a reading were applied. Its length: since the one before.
  void end_reading(int64_t now_mono_ns);
  void add_window(const ProcessKey& process, const Window& window);
  void forget(const ProcessKey& process);

  // Kernel launches a second in the last reading; 0 = none, or hooks count none.
  double get_rate(const ProcessKey& process) const;
  // Empty: not known yet.
  std::optional<Cost> find(const ProcessKey& process) const;

 private:
  struct Reading {
    int64_t begin_mono_ns = 0;
    int64_t end_mono_ns = 0;
    uint64_t launches = 0;
    double get_interval_ns() const {
      return static_cast<double>(end_mono_ns - begin_mono_ns) / static_cast<double>(launches);
    }
  };
  struct Process {
    uint64_t launches = 0;  // since the last reading
    std::deque<Reading> readings;
    std::optional<Window> window;  // until the reading after it has come
    std::deque<double> costs_ns;
  };

  static void judge(Process& process);

  ThreadChecker loop_thread_;
  int64_t reading_mono_ns_ = 0;  // 0 = none yet
  // Calls come with the kernel's form of a process's start, windows with that of /proc.
  std::map<ProcessKey, Process, ProcessOrder> processes_;
};

}  // namespace gpuperf
