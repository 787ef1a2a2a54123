#pragma once

#include <memory>
#include <vector>

#include "daemon/app/named_stacks.h"
#include "daemon/app/part.h"
#include "daemon/app/request_sessions.h"
#include "daemon/collect/drain.h"
#include "daemon/state/adaptive_thresholds.h"
#include "daemon/state/function_stats.h"
#include "daemon/state/past_hooks.h"
#include "daemon/state/requests.h"
#include "daemon/state/shape_table.h"
#include "daemon/state/step_operators.h"
#include "daemon/state/steps.h"

namespace gpuperf {

class GpuMemoryPart;
class KernelPart;
class NcclPart;
class ProbingPart;
class SessionsPart;
class SlowCallsPart;
class TracingPart;

// Takes events from the kernel side and hands them to the parts they concern. Keeps the totals.
class KernelEventsPart final : public Part {
 public:
  // The parts that events go to, and come from.
  struct Others {
    KernelPart& kernel;
    SessionsPart& sessions;
    TracingPart& tracing;
    SlowCallsPart& slow_calls;
    ProbingPart& probing;
    GpuMemoryPart& gpu_memory;
    NcclPart& nccl;
  };

  KernelEventsPart(Core& core, const Others& others);
  Status start() override;
  void stop() override;
  void apply_settings(const Settings& settings) override;
  void advance(int64_t now_mono_ns) override;
  void fill(Snapshot& snapshot) const override;

 private:
  Drain::Setup make_setup();
  MapSource make_totals();
  void take_batches();
  void take(Drain::Batch& batch);
  void take_event(CellDelta& delta);
  void take_event(ProcessExited& exited);
  void take_event(SlowCallEvent& event);
  void take_event(ShapeDelta& delta) { shapes_.apply(delta); }
  void take_event(HandleNamed&) {}  // taken before all others
  void take_event(RawStack&) {}     // likewise
  void take_event(InFlightCalls& calls);
  void take_event(SlowInFlightCalls& calls);
  void take_event(ThreadCosts& costs);
  void take_event(TotalsRead& read);
  void take_event(TraceBatch& batch);
  void take_event(ChildStarted& child);
  void take_event(ReportedCalls& reported);
  void log_summary();

  const Others others_;
  std::unique_ptr<Drain> drain_;  // null where probes cannot be used
  FunctionStats stats_;
  AdaptiveThresholds adaptive_;
  PastHooks past_hooks_;
  ShapeTable shapes_;
  Steps steps_;
  StepOperators operators_;
  Requests requests_;
  RequestSessions request_sessions_;
  NamedStacks step_sites_;
  std::shared_ptr<const InFlightCalls> in_flight_;
  std::vector<BoundLevel> levels_;  // of the kernel side, as last read
  int64_t totals_mono_ns_ = 0;      // when the kernel's totals last came in
  uint64_t summarised_calls_ = 0;
  uint64_t summarised_slow_calls_ = 0;
};

}  // namespace gpuperf
