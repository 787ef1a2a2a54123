#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/event.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// Judges, window by window, what the probes cost each process, and says which functions to take out
// for a while when that is over the budget.
//
// A process pays calls x calibrated cost, of the time it had: the window, or the CPU time it used
// where that is more (eight busy threads have eight seconds a second). Over the budget, its
// costliest functions go, one by one, until what is left is predicted at `kTarget` of the budget:
// for every process, since probes act on files. A function comes back after a pause; taken out
// again on trial, which is the first two windows in which it is called (the first is cut short by
// its return), the next pause is twice as long, up to `longest_pause`; after `quiet` without a
// suspension it starts anew.
//
// Thread: loop only; no I/O, times are passed in. Bounds: counts of one window, for processes with
// calls in it (the kernel's cells bound those); CPU readings of the last minute, for running
// processes over the budget; 100 bytes per function. Not here: measuring costs, taking probes out.
class Budget {
 public:
  struct Limits {
    double percent = 1;  // of each process's time; 0 = off: nothing is out
    std::chrono::seconds first_pause{60};
    std::chrono::seconds longest_pause{600};
    std::chrono::seconds quiet{600};
  };
  struct Decision {
    std::vector<Suspension> suspend;
    std::vector<uint32_t> resume;  // function ids; some may no longer be configured
  };
  // CPU time a process has used since its start, of all its threads, nanoseconds; 0 when it is
  // gone. Asked for pid 0 too, which stands for many processes: the CPU time of the host.
  using ReadCpu = std::function<uint64_t(const ProcessKey&)>;
  static constexpr double kTarget = 0.8;  // of the budget: room, or the next window is over again

  Budget(const Limits& limits, int64_t now_mono_ns);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  void set_percent(double percent) {
    loop_thread_.check();
    limits_.percent = percent;
  }
  // What one call of the function pays for its probes; 0 = not known. The first time also says
  // since when it is probed; without it, its first delta does.
  void set_cost(uint32_t function_id, uint64_t cost_ns, int64_t now_mono_ns);
  // Calls that launch hooks counted cost nothing here.
  void apply(const CellDelta& delta);
  void apply(const ProcessExited& exited) {
    loop_thread_.check();
    cpu_.erase(exited.process);
  }

  // Ends a window. To be called right after the deltas of a reading of all cells were applied,
  // about once a second: a window must hold the calls of just its own time.
  Decision judge(int64_t now_mono_ns, const ReadCpu& read_cpu_ns);

  // Sets suspensions (by function id), overhead (of the last window; a process below the budget is
  // measured by the window alone, so its ratio is the most it can be) and coverage as of
  // snapshot.taken_mono_ns.
  void fill(Snapshot& snapshot) const;

 private:
  struct FunctionState {
    uint64_t cost_ns = 0;
    std::optional<int64_t> probed_since_ns;
    std::optional<Suspension> suspension;  // while out
    int64_t out_since_ns = 0;              // while out
    int64_t out_ns = 0;                    // in earlier suspensions
    int64_t returned_ns = 0;
    std::chrono::nanoseconds pause{0};  // of the last suspension; 0 = none yet
    uint32_t times = 0;
    uint32_t trial_windows = 0;  // still to come
  };
  struct ProcessWindow {
    Owner owner;
    std::map<uint32_t, uint64_t> calls;  // by function id
  };
  struct CpuReading {
    uint64_t cpu_ns = 0;
    int64_t mono_ns = 0;
  };
  struct Cost {
    uint32_t function_id = 0;
    double ns = 0;
  };
  // One process over the budget.
  struct Offender {
    ProcessKey process;
    std::string comm;
    double time_ns = 0;
    std::vector<Cost> costs;  // of functions that are in
  };

  std::vector<Offender> find_offenders(int64_t now_mono_ns, const ReadCpu& read_cpu_ns);
  double read_process_time_ns(const ProcessKey& process, int64_t now_mono_ns,
                              const ReadCpu& read_cpu_ns);
  void relieve(const Offender& offender, int64_t now_mono_ns, Decision& decision);
  void suspend(const Offender& offender, const Cost& cost, int64_t now_mono_ns, Decision& decision);
  void resume_due(int64_t now_mono_ns, Decision& decision);
  void end_trials(const std::set<uint32_t>& called);
  double allowed_ratio() const { return limits_.percent / 100; }

  // Loop thread only.
  ThreadChecker loop_thread_;
  Limits limits_;
  int64_t window_start_ns_;
  std::map<uint32_t, FunctionState> functions_;
  std::map<ProcessKey, ProcessWindow> window_;
  std::map<ProcessKey, CpuReading> cpu_;
  std::vector<OverheadRow> overhead_;  // of the last window, by process
};

}  // namespace gpuperf
