#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/event.h"
#include "daemon/model/overhead.h"
#include "daemon/model/overhead_measurement.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/trace_event.h"
#include "daemon/state/sampled_function.h"

namespace gpuperf {

// Judges, reading by reading, what the probes cost each process, and says which functions to
// suspend when that is over the budget, and when to count those again for a moment.
//
// A process pays calls x calibrated cost, of the time it had: the time between two readings, or the
// CPU time it used where that is more (eight busy threads have eight seconds a second). What launch
// hooks cost it, and CUPTI's part where its launches are recorded, is taken from its budget first.
// Over what is left, its costliest functions are suspended, one by one, until the rest is predicted
// at `kTarget` of that: for every process, since probes act on files. The same where one thread
// loses more than that of the time that passed: others may wait for it. Functions that show steps
// come last. Where a second's budget is
// used up before the second is over, the kernel side says so (get_alarm_mask), and judge_early
// decides.
//
// A suspended function is probed for kWindow at a time (SampledFunction), one function at once, as
// often as all windows together cost `kWindowsShare` of the budget, but for the limits of a gap. It
// is probed all the time again after kCheapWindows windows in a row in which it cost less than
// kTarget of the budget, twice as many each time it is suspended anew, or once the budget is off. A
// function that the configuration says to sample stays in windows.
//
// Thread: loop only; no I/O, times are passed in. Bounds: counts of one reading, for processes with
// calls in it (the kernel's cells bound those); CPU readings of the last minutes, for running
// processes that were over the budget or in windows; 100 bytes per function and per running thread
// that made probed calls. Not here: measuring costs, attaching and detaching probes.
class Budget {
 public:
  struct Estimate {
    uint32_t function_id = 0;
    ProcessKey process;
    CallsEstimate missed;
  };
  struct Decision {
    std::vector<Suspension> suspend;
    std::vector<uint32_t> resume;  // function ids; some may no longer be configured
    // To be probed for kWindow now; end_window is called then.
    std::optional<uint32_t> window;
    std::vector<Estimate> estimates;
  };
  // What launch hooks cost a call, the flight recorder included, until its process has measured it
  // (set_hooked_call_cost): between a loop of launches and other work in between
  // (docs/overhead.md, "What gpuperf says it costs").
  static constexpr uint64_t kHookedCallCostNs = 210;
  static constexpr std::chrono::milliseconds kWindow{50};
  // Until the trap is gone, after that: a loop that does nothing else lost 54 to 84 ms to a window.
  static constexpr std::chrono::milliseconds kWindowTail{40};
  static constexpr std::chrono::seconds kShortestGap{5};
  static constexpr std::chrono::seconds kLongestGap{120};
  static constexpr double kWindowsShare = 0.2;  // of the budget, for all windows
  static constexpr uint32_t kCheapWindows = 8;
  static constexpr uint32_t kMostDoublings = 5;
  static constexpr double kCorrectionMin = 0.5;
  static constexpr double kCorrectionMax = 4;
  // CPU time a process has used since its start, of all its threads, nanoseconds; 0 when it is
  // gone. Asked for pid 0 too, which stands for many processes: the CPU time of the host.
  using ReadCpu = std::function<uint64_t(const ProcessKey&)>;
  static constexpr double kTarget =
      0.8;  // of the budget: room, or the next reading is over it again

  Budget(const OverheadLimits& limits, int64_t now_mono_ns);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  void set_limits(const OverheadLimits& limits) {
    loop_thread_.check();
    limits_ = limits;
  }
  // Some process has a budget.
  bool is_on() const { return limits_.get_least_percent() > 0; }
  // Those whose launches CUPTI's records cost something: the rest of their budget is for probes.
  void set_recorded(std::set<ProcessKey, ProcessOrder> processes) {
    recorded_ = std::move(processes);
  }
  // What launch hooks cost a call of the process, as measured in it (HookCost); empty = its session
  // has ended.
  void set_hooked_call_cost(const ProcessKey& process, std::optional<double> cost_ns);
  // Somebody demanded that nothing is probed, or no longer does: for coverage.
  void set_standing_down(bool is_standing_down, int64_t now_mono_ns);
  // What one call of the function pays for its probes; 0 = not known. The first time also says
  // since when it is probed; without it, its first delta does.
  void set_cost(uint32_t function_id, uint64_t cost_ns, int64_t now_mono_ns);
  // Whether the configuration says to sample it, whatever it costs.
  void set_sampled(uint32_t function_id, bool is_sampled, int64_t now_mono_ns);
  // Whether its calls show what steps the process makes: suspended only where all others were not
  // enough.
  void set_shows_steps(uint32_t function_id, bool shows_steps);
  // It was suspended when the daemon last ran, and begins so; `earlier` says of whom, how much and
  // how often. Empty: the budget is off, or it is suspended already.
  std::optional<Suspension> restore(const Suspension& earlier, int64_t now_mono_ns);
  // Its probes are out: since when, as seen.
  void note_suspended(uint32_t function_id, int64_t now_mono_ns);
  // Of Decision::window: from when to when it was probed; twice the same = in no file.
  void end_window(uint32_t function_id, int64_t begin_mono_ns, int64_t end_mono_ns);
  // Calls that launch hooks counted are not judged.
  void apply(const CellDelta& delta);
  void apply(const ProcessExited& exited);
  // About once a second.
  void apply(const ThreadCosts& costs);

  // To be called right after the deltas of a reading of all cells were applied, about once a
  // second: they must be the calls since the last judgement.
  Decision judge(int64_t now_mono_ns, const ReadCpu& read_cpu_ns);

  // Likewise, between two such readings: who has used up the budget of a whole second already.
  Decision judge_early(int64_t now_mono_ns, const ReadCpu& read_cpu_ns);
  // gpuperf_function::alarm_mask of a function whose call costs so much; 0 = never.
  static uint32_t get_alarm_mask(double budget_percent, uint64_t cost_ns);

  std::vector<Suspension> list_suspensions() const;
  // By the last judgement.
  const std::vector<OverheadRow>& overhead() const { return overhead_; }
  // An experiment's result for a process that runs. Where the estimate lies outside of its
  // interval, the process's calls are taken to cost accordingly more or less from now on, within
  // kCorrectionMin and kCorrectionMax of what is calibrated.
  void correct(const OverheadMeasurement& measured);
  // Sets suspensions (by function id), overhead (between the last two readings; a process below the
  // budget is measured by that time alone, so its ratio is the most it can be) and coverage as of
  // snapshot.taken_mono_ns.
  void fill(Snapshot& snapshot) const;

 private:
  struct FunctionState {
    uint64_t cost_ns = 0;
    std::optional<int64_t> probed_since_ns;
    std::optional<Suspension> suspension;    // while over the budget
    std::optional<SampledFunction> sampled;  // likewise, or while the configuration says so
    int64_t due_ns = 0;                      // of its next window
    int64_t out_ns = 0;                      // in earlier suspensions
    uint32_t times = 0;
    uint32_t cheap_windows = 0;
    bool is_always_sampled = false;
    bool shows_steps = false;
    bool is_standing_down = false;
    double allowed_ratio = 0;  // of the process it was suspended for
  };
  struct ProcessCalls {
    Owner owner;
    std::map<uint32_t, uint64_t> calls;  // by function id, those of probes
    uint64_t hooked = 0;
  };
  struct ThreadShare {
    double ratio = 0;                    // of the time that passed, in the thread that pays most
    std::map<uint32_t, uint64_t> calls;  // of the process in that time, by function id
  };
  struct CpuReading {
    uint64_t cpu_ns = 0;
    int64_t mono_ns = 0;
    double cpus = 0;  // used between the last two readings; 0 = not known
  };
  struct Window {
    uint32_t function_id = 0;
    std::optional<std::pair<int64_t, int64_t>> span_ns;  // empty = it lasts
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
    double allowed_ratio = 0;
    double allowed_ns = 0;
    double in_ns = 0;         // of all costs
    std::vector<Cost> costs;  // of functions that are in

    double get_share() const { return in_ns / time_ns; }
  };
  struct Reading {
    std::vector<OverheadRow> overhead;
    std::vector<Offender> offenders;  // the worst first: relieving them may be enough for the rest
  };

  // What a process used between the last reading and the one at hand, of its CPU time.
  using GetTime = std::function<double(const ProcessKey&)>;

  // `least_ns`: of the time that the budget is of.
  Reading add_up(int64_t now_mono_ns, double least_ns, const GetTime& get_time_ns);
  double estimate_process_time_ns(const ProcessKey& process, int64_t now_mono_ns,
                                  const ReadCpu& read_cpu_ns) const;
  double read_process_time_ns(const ProcessKey& process, int64_t now_mono_ns,
                              const ReadCpu& read_cpu_ns);
  void relieve(const Offender& offender, int64_t now_mono_ns, Decision& decision);
  void suspend(const Offender& offender, const Cost& cost, int64_t now_mono_ns, Decision& decision);
  void close_window(int64_t now_mono_ns, const ReadCpu& read_cpu_ns, Decision& decision);
  void open_window(int64_t now_mono_ns, Decision& decision);
  void end_sampling(uint32_t function_id, int64_t now_mono_ns);
  void resume(uint32_t function_id, int64_t now_mono_ns, Decision& decision);
  void resume_all(int64_t now_mono_ns, Decision& decision);
  int64_t find_gap_ns(const FunctionState& state) const;
  // Of ThreadShare::ratio what functions cost that are in now, if threads call all functions alike.
  double get_thread_ratio_in(const ThreadShare& share) const;
  double get_probes_ratio(const ProcessKey& process, const Owner& owner) const;
  double get_correction(const ProcessKey& process) const;

  // Loop thread only.
  ThreadChecker loop_thread_;
  OverheadLimits limits_;
  std::set<ProcessKey, ProcessOrder> recorded_;
  bool is_standing_down_ = false;
  int64_t reading_start_ns_;
  std::map<uint32_t, FunctionState> functions_;
  std::map<ProcessKey, ProcessCalls> calls_;  // since the last reading
  std::map<ProcessKey, CpuReading> cpu_;
  std::map<ProcessKey, double, ProcessOrder> corrections_;        // of what calls cost; missing = 1
  std::map<ProcessKey, double, ProcessOrder> hooked_call_costs_;  // missing = kHookedCallCostNs
  std::map<std::pair<ProcessKey, uint32_t>, uint64_t> thread_costs_ns_;  // by thread, as last read
  int64_t thread_costs_mono_ns_ = 0;                                     // 0 = never
  // Between the last two of those.
  std::map<ProcessKey, ThreadShare> thread_shares_;
  std::map<ProcessKey, std::map<uint32_t, uint64_t>> thread_calls_;  // since the last of them
  std::vector<OverheadRow> overhead_;  // between the last two readings, by process
  std::optional<Window> sampling_window_;
  std::vector<Estimate> estimates_;  // for the next decision
};

}  // namespace gpuperf
