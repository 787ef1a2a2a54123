#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/snapshot.h"
#include "daemon/state/learned_steps.h"
#include "daemon/state/recent_processes.h"
#include "daemon/state/step_assembly.h"

namespace gpuperf {

// Steps of processes, from each call of the functions that have a role: the newest and the slow
// ones, totals by phase, and which processes hang.
//
// Thread: loop only; times are passed in. `drops` must outlive it. Rows handed out by `fill` never
// change: the next step copies. Bounds: `max_processes`, of which the one that exited first makes
// room for another; without such a one the calls of the other are no steps and counted
// (kStepsProcessesFull). kRecent and kSlow steps a process, the oldest leave. kMaxThreads a
// process: the one that was idle longest ends, which loses nothing but what it waits for. Memory:
// 100 KB a process.
class Steps {
 public:
  struct Limits {
    std::chrono::seconds keep_exited{600};
    size_t max_processes = 256;
  };
  static constexpr size_t kRecent = 512;
  static constexpr size_t kSlow = 64;
  static constexpr size_t kMaxThreads = 64;
  // A process hangs when a step, or in training the time since the last one began, takes this many
  // times the p99 of its own, and a second at least. With fewer steps a p99 means nothing.
  static constexpr uint64_t kStallFactor = 10;
  static constexpr uint64_t kStallFloorNs = 1'000'000'000;
  static constexpr uint64_t kStallMinSteps = 20;
  // A learned step is slow from this many times the median of its phase on, once there were
  // kStallMinSteps: no function has a threshold for it.
  static constexpr uint64_t kSlowFactor = 4;

  // `on_step`: gets each step once it is complete, in the order of their ids.
  Steps(const Limits& limits, DropCounters& drops, std::function<void(const Step&)> on_step)
      : drops_(drops), on_step_(std::move(on_step)), limits_(limits) {}
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  void set_keep_exited(std::chrono::seconds keep) { limits_.keep_exited = keep; }
  // `adaptive_threshold_ns`: by function id; missing or 0 = none.
  void apply(const ReportedCalls& calls, const FunctionList& functions,
             std::span<const uint64_t> adaptive_threshold_ns);
  // Finds processes that hang, and those that no longer do.
  void apply(const InFlightCalls& look, const FunctionList& functions);
  void apply(const ProcessExited& exited, int64_t now_mono_ns);
  // Call several times a second.
  void expire(int64_t now_mono_ns);

  // Its row, until the next step; null = it has made none.
  const StepProcess* find(const ProcessKey& process) const;
  // The processes that run and have made a step.
  std::vector<ProcessKey> list_running() const;
  // Where processes that run read the results of their newest learned step: stacks by id.
  std::map<uint64_t, ProcessKey> list_sites() const;
  // Sets the steps.
  void fill(Snapshot& snapshot) const;

 private:
  struct Process {
    std::shared_ptr<StepProcess> row;
    mutable bool is_shared = false;            // some snapshot holds `row`: copy before changing it
    std::map<uint32_t, StepAssembly> threads;  // by tid
    LearnedSteps learned;
    bool has_marked = false;     // steps that functions mark: none is learned
    int64_t exited_mono_ns = 0;  // 0 = it runs, as far as is known
  };
  using Processes = std::map<ProcessKey, Process>;

  static StepProcess& change(Process& process);
  Process* find_or_add(const ProcessKey& key, int64_t now_mono_ns);
  bool ends_in_waits(const ProcessKey& key) const;
  void learn(Process& process, const ReportedCall& call, const Function& function, StepRole role);
  StepAssembly& find_thread(Process& process, uint32_t tid);
  void add_ended(Process& process);
  void set_stall(Process& process, StepStall stall, uint64_t since_mono_ns);

  // Set once in the constructor.
  DropCounters& drops_;
  const std::function<void(const Step&)> on_step_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  Limits limits_;
  Processes processes_;
  RecentProcesses exited_;
  std::map<std::pair<uint32_t, StepPhase>, StepTotals> totals_;  // by function and phase
  std::array<uint64_t, kStepStalls> stalls_{};
  uint64_t last_id_ = 0;
  std::vector<Step> ended_;  // of the process at hand; empty between events
};

}  // namespace gpuperf
