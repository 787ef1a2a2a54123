// What the kernel side tells, on its way to whoever keeps it.

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/daemon.h"
#include "daemon/probe/probe_report.h"
#include "daemon/process_cpu.h"
#include "daemon/walk_tables.h"

namespace gpuperf {
namespace {

constexpr LogEvent kProbeSuspended{"probe suspended by the overhead budget",
                                   "41c8d7d889b141a3993d487f41e05607"};

}  // namespace

void Daemon::take_report(std::shared_ptr<const ProbeReport> report) {
  report_ = std::move(report);
  std::map<uint32_t, uint64_t> costs_ns;  // a function in several files costs what its dearest does
  for (const ProbeRow& row : report_->probes) {
    if (!is_probed(row.state)) continue;
    uint64_t& cost_ns = costs_ns[row.function_id];
    cost_ns = std::max(cost_ns, row.cost_ns);
  }
  for (const auto& [function_id, cost_ns] : costs_ns) {
    budget_.set_cost(function_id, cost_ns, clock_.mono_ns());
  }
  changed_ = true;
}

void Daemon::take_batches() {
  if (drain_ == nullptr) return;  // posted before the stop, run after it: all was taken
  while (auto batch = drain_->try_pop()) {
    // The rings are emptied slow calls first: the names and stacks that they need are in the same
    // batch.
    std::vector<RawStack> stacks;
    for (Event& event : *batch) {
      if (const auto* named = std::get_if<HandleNamed>(&event)) kernel_names_.apply(*named);
      if (auto* stack = std::get_if<RawStack>(&event)) stacks.push_back(std::move(*stack));
    }
    std::vector<uint64_t> stack_ids;
    for (const RawStack& stack : stacks) stack_ids.push_back(stack.id);
    if (!stack_ids.empty() && !symbolizer_->post_stacks(std::move(stacks))) {
      drops_.add(DropCause::kStacksQueueFull, stack_ids.size());
      for (const uint64_t id : stack_ids) forget_sent_stack(*programs_, id);
    }
    for (Event& event : *batch) {
      std::visit([this](auto& known) { take_event(known); }, event);
    }
    changed_ = true;
  }
}

void Daemon::take_event(CellDelta& delta) {
  stats_.apply(delta);
  adaptive_.apply(delta);
  budget_.apply(delta);
}

void Daemon::take_event(ProcessExited& exited) {
  stats_.apply(exited, clock_.mono_ns());
  slow_calls_->apply(exited);
  shapes_.apply(exited);
  kernel_names_.apply(exited);
  budget_.apply(exited);
  tracing_->apply(exited);
}

void Daemon::take_event(InFlightCalls& calls) {
  in_flight_ = std::make_shared<const InFlightCalls>(std::move(calls));
}

void Daemon::take_event(TotalsRead& read) {
  totals_mono_ns_ = read.mono_ns;
  for (const auto& [function_id, threshold_ns] : adaptive_.judge(read.mono_ns)) {
    programs_->set_adaptive_threshold(function_id, threshold_ns);
  }
  judge_budget(read.mono_ns);
}

// Who asks for a capture wants all of it: no probe is taken out meanwhile.
void Daemon::judge_budget(int64_t now_mono_ns) {
  const bool is_capturing = tracing_->needs_every_probe();
  budget_.set_percent(is_capturing ? 0 : config_.settings().overhead.budget_percent);
  const Budget::Decision decision = budget_.judge(now_mono_ns, read_process_cpu_ns);
  if (decision.suspend.empty() && decision.resume.empty()) return;
  const auto functions = registry_.get();
  for (const Suspension& out : decision.suspend) {
    suspended_.insert(out.function_id);
    log_warn(kProbeSuspended,
             {{"function", (*functions)[out.function_id].name},
              {"pid", std::to_string(out.process.pid)},
              {"comm", out.comm},
              {"share_ratio", std::to_string(out.share_ratio)},
              {"pause_ms", std::to_string((out.until_mono_ns - now_mono_ns) / 1'000'000)}});
  }
  for (const uint32_t function_id : decision.resume) {
    suspended_.erase(function_id);
    log_info("probe back after suspension", {{"function", (*functions)[function_id].name}});
  }
  if (prober_) prober_->post_suspended(suspended_);
}

void Daemon::take_event(SlowInFlightCalls& calls) {
  const int64_t now_mono_ns = clock_.mono_ns();
  for (SlowCallEvent& event : calls.calls) {
    if (slow_calls_->see_in_flight(event, now_mono_ns) != SlowCalls::Sighting::kKnown) {
      namer_->take(std::move(event));
    }
  }
  for (const auto& gone : slow_calls_->collect_gone(now_mono_ns)) store_slow_call({gone});
}

// A call of an injected process comes back, and is kept, when it is known what its GPU did.
void Daemon::take_slow_call(SlowCall call) {
  tracing_->note_slow_call(call);
  if (!tracing_->hold(call)) keep_slow_call(std::move(call));
}

void Daemon::keep_slow_call(SlowCall call) {
  call.is_stored = store_ != nullptr;
  const SlowCalls::Kept kept = slow_calls_->add(std::move(call), clock_.mono_ns());
  if (kept.call != nullptr) store_slow_call(kept);
}

// A call is told of once it is on disk: whoever saw it finds it again, whatever happens to the
// daemon.
void Daemon::store_slow_call(const SlowCalls::Kept& kept) {
  changed_ = true;
  if (store_ == nullptr) return tell_slow_call(kept, false);
  const auto on_written = [this, kept](bool is_stored) {
    loop_->post([this, kept, is_stored] {
      if (!is_stored) drops_.add(DropCause::kSlowStoreFailed);
      tell_slow_call(kept, is_stored);
    });
  };
  const auto make = [call = kept.call] { return make_stored_call(*call); };
  if (store_->post_write(make, on_written)) return;
  drops_.add(DropCause::kSlowStoreQueueFull);
  tell_slow_call(kept, false);
}

void Daemon::tell_slow_call(const SlowCalls::Kept& kept, bool is_stored) {
  const bool as_kept = kept.call->is_stored == is_stored;
  const auto call = as_kept ? kept.call : slow_calls_->mark_unstored(kept.call);
  if (!kept.is_news) return;
  for (Exporter* exporter : exporters_) exporter->on_slow_call(call);
}

}  // namespace gpuperf
