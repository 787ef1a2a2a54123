#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/snapshot.h"
#include "daemon/model/tensor_layout.h"
#include "daemon/state/recent_processes.h"

namespace gpuperf {

// What operators run within steps, how long they take, and which experts tokens go to.
//
// An operator has no end of its own: it lasts until the next one of its thread begins. The last of
// a graph lasts until its step ends; where one that is usually followed by another is followed by
// none, the probe was detached in between, and it is not timed.
// Thread: loop only. `layouts` and `drops` must outlive it. Bounds: kMaxProcesses, of which the one
// that ended first makes room; without such a one the operators of another are counted as drops
// (kStepsProcessesFull). A process: kMaxKinds, kMaxThreads, kMaxLayers, kMaxCounters; what is
// beyond is counted in its row. Memory: 400 KB a process.
class StepOperators {
 public:
  static constexpr size_t kMaxProcesses = 32;
  static constexpr size_t kMaxKinds = 512;     // a model of llama.cpp has some 60
  static constexpr size_t kMaxThreads = 64;    // that begin operators at the same time
  static constexpr size_t kMaxLayers = 256;    // DeepSeek-V3 has 58 with experts
  static constexpr size_t kMaxExperts = 1024;  // of a layer; DeepSeek-V3 has 256
  static constexpr size_t kMaxCounters = 32'768;
  // Between two that follow each other; more is a pause between graphs.
  static constexpr uint64_t kMaxOperatorNs = 1'000'000'000;

  StepOperators(std::chrono::seconds keep_exited, const TensorLayouts& layouts, DropCounters& drops)
      : layouts_(layouts), drops_(drops), keep_exited_(keep_exited) {}
  StepOperators(const StepOperators&) = delete;
  StepOperators& operator=(const StepOperators&) = delete;

  void set_keep_exited(std::chrono::seconds keep) { keep_exited_ = keep; }
  void apply(const ReportedCalls& calls, const FunctionList& functions);
  void apply(const ProcessExited& exited, int64_t now_mono_ns);
  void expire(int64_t now_mono_ns);

  // Sets the operators.
  void fill(Snapshot& snapshot) const;

 private:
  struct Kind {
    uint64_t calls = 0;
    uint64_t followed = 0;  // by another of the same graph
    uint64_t followed_ns = 0;
    uint64_t last = 0;  // ended with its step
    uint64_t last_ns = 0;
  };
  using Kinds = std::map<std::pair<std::string, std::string>, Kind>;  // operation, tensor
  // An operator that goes on.
  struct Open {
    Kind* kind = nullptr;
    uint64_t start_mono_ns = 0;
    uint64_t lost = 0;
  };
  struct Process {
    Kinds kinds;
    std::map<uint32_t, Open> threads;  // by tid
    std::map<std::string, ExpertLayer> layers;
    uint32_t function_id = 0;
    uint64_t other_calls = 0;
    uint64_t other_tokens = 0;
    size_t counters = 0;                                 // of all layers
    int64_t exited_mono_ns = 0;                          // 0 = it runs, as far as is known
    mutable std::shared_ptr<const OperatorProcess> row;  // null = it has changed since
  };

  Process* find_or_add(const ProcessKey& key, int64_t now_mono_ns);
  void take_operator(const ReportedCall& call, Process& process) const;
  static void take_routing(const Routing& routing, Process& process);
  static void end_step(const ReportedCall& call, Process& process);
  static OperatorProcess make_row(const ProcessKey& key, const Process& process);

  // Set once in the constructor.
  const TensorLayouts& layouts_;
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  std::chrono::seconds keep_exited_;
  std::map<ProcessKey, Process> processes_;
  RecentProcesses exited_;
};

// The same name for the tensors of all layers: runs of digits behind "-", "_", "." or "_l" are "N".
std::string get_tensor_kind(const std::string& name);

}  // namespace gpuperf
