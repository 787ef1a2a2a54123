#include "daemon/app/kernel_events_part.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "daemon/app/gpu_memory_part.h"
#include "daemon/app/kernel_part.h"
#include "daemon/app/nccl_part.h"
#include "daemon/app/probing_part.h"
#include "daemon/app/sessions_part.h"
#include "daemon/app/slow_calls_part.h"
#include "daemon/app/tracing_part.h"
#include "daemon/base/proc_text.h"
#include "daemon/collect/cell_store.h"
#include "daemon/collect/decode_calls.h"
#include "daemon/model/api_names.h"
#include "daemon/owner/container.h"
#include "daemon/probe/attach/in_flight.h"

namespace gpuperf {
namespace {

// The budget must see a hot function within two seconds: totals are read at least this often.
constexpr std::chrono::milliseconds kBudgetWindow{1000};

AdaptiveThresholds::Options make_adaptive_options(const Settings& settings) {
  return {.factor = settings.slow.adaptive_factor,
          .floor_ns = static_cast<uint64_t>(settings.slow.adaptive_floor_ms * 1e6)};
}

Result<SlowInFlightCalls> read_slow_in_flight(SlowInFlightReader& reader) {
  ASSIGN_OR_RETURN(const auto records, reader.read());
  SlowInFlightCalls found;
  for (const gpuperf_slow_in_flight& record : records) {
    found.calls.push_back(decode_slow_in_flight(record));
  }
  return found;
}

}  // namespace

KernelEventsPart::KernelEventsPart(Core& core, const Others& others)
    : Part(core),
      others_(others),
      stats_({.keep_exited = std::chrono::seconds(core.settings.stats.keep_exited_seconds),
              .max_exited_processes = core.settings.stats.max_exited_processes},
             core.drops),
      adaptive_(make_adaptive_options(core.settings)),
      shapes_(core.drops),
      steps_({.keep_exited = std::chrono::seconds(core.settings.stats.keep_exited_seconds)},
             core.drops, [this](const Step& step) { others_.tracing->apply(step); }),
      operators_(std::chrono::seconds(core.settings.stats.keep_exited_seconds), core.tensor_layouts,
                 core.drops),
      requests_(std::chrono::seconds(core.settings.stats.keep_exited_seconds), steps_, core.drops),
      request_sessions_(others.kernel),
      step_sites_(core, others.kernel) {}

Status KernelEventsPart::start() {
  if (others_.kernel.programs()) {
    ASSIGN_OR_RETURN(drain_, Drain::make(make_setup(), make_totals(), core_.drops));
    drain_->start();
  }
  const std::chrono::seconds summary(core_.settings.stats.summary_interval_seconds);
  if (summary.count() == 0) return absl::OkStatus();
  return core_.loop->add_timer(summary, [this] { log_summary(); });
}

void KernelEventsPart::stop() {
  if (!drain_) return;
  drain_->stop();
  take_batches();
  core_.publish();  // for what is exported last
  log_summary();
  drain_.reset();
}

Drain::Setup KernelEventsPart::make_setup() {
  const Programs& programs = *others_.kernel.programs();
  return {.slow_ring_fd = programs.map_fd("slow_ring"),
          .process_ring_fd = programs.map_fd("process_ring"),
          .name_ring_fd = programs.map_fd("name_ring"),
          .stack_ring_fd = programs.map_fd("stack_ring"),
          .stack_copy_ring_fd = programs.map_fd("stack_copy_ring"),
          .trace_ring_fd = programs.map_fd("trace_ring"),
          .report_ring_fd = programs.map_fd("report_ring"),
          .interval =
              std::min(std::chrono::milliseconds(core_.settings.stats.interval_ms), kBudgetWindow),
          .read_in_flight = [reader = std::make_shared<InFlightReader>(
                                 programs, "list_in_flight")]() -> Result<InFlightCalls> {
            ASSIGN_OR_RETURN(const auto records, reader->read());
            return decode_in_flight(records);
          },
          .read_slow_in_flight =
              [reader = std::make_shared<SlowInFlightReader>(programs, "list_slow_in_flight")] {
                return read_slow_in_flight(*reader);
              },
          .read_thread_costs = [reader = std::make_shared<ThreadCostReader>(
                                    programs, "list_thread_costs")]() -> Result<ThreadCosts> {
            ASSIGN_OR_RETURN(const auto records, reader->read());
            return decode_thread_costs(records);
          },
          .on_batch = [this] { core_.loop->post([this] { take_batches(); }); }};
}

MapSource KernelEventsPart::make_totals() {
  const auto find_owner = [this, proc = core_.reader.make_files()](
                              const ProcessKey& process, const gpuperf_process_info* info) {
    // So that a short program's stacks can be named after it.
    others_.kernel.symbolizer().post_prepare(process);
    WorldTask world;
    Owner owner = read_owner(proc, process, info, &world);
    if (world.rank) {
      core_.loop->post([this, process, world] { others_.nccl.learn_world(process, world); });
    }
    return owner;
  };
  const auto is_alive = [](const ProcessKey& process) {
    return is_running_since("/proc", process.pid, process.start_boot_ns);
  };
  const auto name_pod = [this](Owner& owner) {
    return others_.sessions.pod_names().name(owner) != PodNames::State::kAsked;
  };
  return MapSource(make_cell_store(*others_.kernel.programs()), {find_owner, is_alive, name_pod},
                   core_.drops);
}

void KernelEventsPart::apply_settings(const Settings& settings) {
  stats_.set_keep_exited(std::chrono::seconds(settings.stats.keep_exited_seconds));
  adaptive_.set_options(make_adaptive_options(settings));
  steps_.set_keep_exited(std::chrono::seconds(settings.stats.keep_exited_seconds));
  operators_.set_keep_exited(std::chrono::seconds(settings.stats.keep_exited_seconds));
  requests_.set_keep_exited(std::chrono::seconds(settings.stats.keep_exited_seconds));
}

void KernelEventsPart::advance(int64_t now_mono_ns) {
  stats_.expire(now_mono_ns);
  steps_.expire(now_mono_ns);
  operators_.expire(now_mono_ns);
  requests_.expire(now_mono_ns);
  requests_.set_sessions(request_sessions_.keep(steps_.list_running()));
  step_sites_.keep(steps_.list_sites());
}

void KernelEventsPart::fill(Snapshot& snapshot) const {
  snapshot.totals_mono_ns = totals_mono_ns_;
  snapshot.in_flight = in_flight_;
  stats_.fill(snapshot);
  shapes_.fill(snapshot);
  adaptive_.fill(snapshot);
  steps_.fill(snapshot);
  operators_.fill(snapshot);
  requests_.fill(snapshot);
  step_sites_.fill(snapshot);
  for (const BoundLevel& level : levels_) snapshot.self.bounds.push_back(level);
  if (!drain_) return;
  snapshot.self.add(Bound::kDrainQueue, drain_->take_highest_queued(), Drain::kQueueBatches);
}

void KernelEventsPart::take_batches() {
  assert(core_.loop->on_loop());
  if (drain_ == nullptr) return;  // posted before the stop, run after it: all was taken
  while (auto batch = drain_->try_pop()) take(*batch);
}

void KernelEventsPart::take(Drain::Batch& batch) {
  // The rings are emptied slow calls first: the names and stacks that they need are in the same
  // batch.
  std::vector<RawStack> stacks;
  for (Event& event : batch) {
    if (const auto* named = std::get_if<HandleNamed>(&event)) others_.slow_calls.apply(*named);
    if (auto* stack = std::get_if<RawStack>(&event)) stacks.push_back(std::move(*stack));
  }
  others_.kernel.take(std::move(stacks));
  for (Event& event : batch) {
    std::visit([this](auto& known) { take_event(known); }, event);
  }
  core_.changed = true;
}

void KernelEventsPart::take_event(CellDelta& delta) {
  stats_.apply(delta);
  adaptive_.apply(delta);
  const auto functions = core_.registry.get();
  const std::string& symbol = (*functions)[delta.function_id].symbol;
  past_hooks_.apply(delta, is_launch_entry(symbol));
  others_.probing.apply(delta);
  if (delta.hooked > 0 && is_kernel_launch(symbol)) {
    others_.sessions.launch_costs().apply(delta.process, delta.hooked);
  }
}

void KernelEventsPart::take_event(ProcessExited& exited) {
  stats_.apply(exited, core_.clock.mono_ns());
  others_.slow_calls.apply(exited);
  shapes_.apply(exited);
  steps_.apply(exited, core_.clock.mono_ns());
  operators_.apply(exited, core_.clock.mono_ns());
  requests_.apply(exited, core_.clock.mono_ns());
  past_hooks_.apply(exited);
  others_.probing.apply(exited);
  others_.tracing->apply(exited);
  others_.sessions.launch_costs().forget(exited.process);
  others_.gpu_memory.apply(exited);
  others_.nccl.apply(exited);
}

void KernelEventsPart::take_event(SlowCallEvent& event) {
  others_.slow_calls.pipeline().take(std::move(event));
}
void KernelEventsPart::take_event(SlowInFlightCalls& calls) {
  others_.slow_calls.pipeline().take(calls);
}
void KernelEventsPart::take_event(TraceBatch& batch) { others_.tracing->apply(batch); }
void KernelEventsPart::take_event(ChildStarted& child) { others_.tracing->apply(child); }

void KernelEventsPart::take_event(ReportedCalls& reported) {
  const auto functions = core_.registry.get();
  for (const ReportedCall& call : reported.calls) {
    const Function& function = (*functions)[call.function_id];
    switch (function.arguments == nullptr ? CallReport::kNone : function.arguments->report) {
      case CallReport::kNone:
      case CallReport::kStep:
        break;
      case CallReport::kMemory:
        others_.gpu_memory.apply(function, call);
        break;
      case CallReport::kNccl:
        others_.nccl.apply(function, call);
        break;
    }
  }
  steps_.apply(reported, *functions, adaptive_.thresholds_ns());
  operators_.apply(reported, *functions);
  requests_.apply(reported.responses);
}

void KernelEventsPart::take_event(InFlightCalls& calls) {
  steps_.apply(calls, *core_.registry.get());
  in_flight_ = std::make_shared<const InFlightCalls>(std::move(calls));
}

void KernelEventsPart::take_event(ThreadCosts& costs) { others_.probing.apply(costs); }

void KernelEventsPart::take_event(TotalsRead& read) {
  totals_mono_ns_ = read.mono_ns;
  levels_ = std::move(read.levels);
  if (read.is_early) return others_.probing.judge_budget_early(read.mono_ns);
  for (const auto& [function_id, threshold_ns] : adaptive_.judge(read.mono_ns)) {
    others_.kernel.programs()->set_adaptive_threshold(function_id, threshold_ns);
  }
  for (const PastHooks::Found& found : past_hooks_.end_window()) {
    stats_.add_past_hooks(found.process, found.function_id, found.calls);
  }
  others_.sessions.launch_costs().end_reading(read.mono_ns);
  others_.probing.set_recorded(others_.sessions.windows().list_in_windows());
  others_.probing.judge_budget(read.mono_ns);
  others_.gpu_memory.apply(others_.probing.list_suspensions());
  for (const Budget::Estimate& found : others_.probing.take_missed()) {
    stats_.add_missed(found.process, found.function_id, found.missed);
  }
}

void KernelEventsPart::log_summary() {
  Snapshot now;
  stats_.fill(now);
  uint64_t calls = 0, slow_calls = 0, total_ns = 0;
  const FunctionSeries* busiest = nullptr;
  for (const auto& series : now.series) {
    calls += series->totals.calls;
    slow_calls += series->totals.slow_calls;
    total_ns += series->totals.total_ns;
    if (!busiest || series->totals.total_ns > busiest->totals.total_ns) busiest = series.get();
  }
  log_info("summary",
           {{"calls", std::to_string(calls)},
            {"calls_since_last", std::to_string(calls - std::exchange(summarised_calls_, calls))},
            {"slow_calls", std::to_string(slow_calls)},
            {"slow_calls_since_last",
             std::to_string(slow_calls - std::exchange(summarised_slow_calls_, slow_calls))},
            {"total_ns", std::to_string(total_ns)},
            {"busiest", busiest ? (*core_.registry.get())[busiest->function_id].name : "none"}});
}

}  // namespace gpuperf
