#include "daemon/capture/tracing.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/unwind/walk_tables.h"

namespace gpuperf {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
// A burst of slow calls is one incident.
constexpr uint64_t kFreezePauseNs = 60 * kNsPerSecond;
constexpr uint32_t kTraceAll =
    GPUPERF_TRACE_LAUNCHES | GPUPERF_TRACE_STACKS | GPUPERF_TRACE_CALLS | GPUPERF_TRACE_THREADS;

bool is_within_pause(uint64_t last_ns, uint64_t now_ns) {
  return last_ns != 0 && now_ns < last_ns + kFreezePauseNs;
}

gpuperf_trace_order make_order_for_everyone(const Settings& settings,
                                            const std::vector<Captures::Wanted>& wanted) {
  gpuperf_trace_order order{.min_call_ns = settings.trace.min_call_us * 1'000,
                            .long_call_ns = settings.trace.long_call_us * 1'000};
  if (settings.trace.recorder) {
    order.flags = GPUPERF_TRACE_LAUNCHES | GPUPERF_TRACE_CALLS;
    if (settings.trace.stacks_per_second > 0) {
      order.flags |= GPUPERF_TRACE_STACKS;
      order.stack_interval_ns = kNsPerSecond / settings.trace.stacks_per_second;
    }
  }
  const auto takes_all = [](const Captures::Wanted& one) { return one.cpu && one.all_processes; };
  if (std::ranges::any_of(wanted, takes_all)) {
    order.flags = kTraceAll;
    order.stack_interval_ns = 0;
    order.min_call_ns = 0;
  }
  return order;
}

gpuperf_launch_reports get_launch_reports(const gpuperf_trace_order& everyone,
                                          const std::vector<Captures::Wanted>& wanted) {
  if (std::ranges::any_of(wanted, &Captures::Wanted::cpu)) return GPUPERF_LAUNCHES_EACH;
  if ((everyone.flags & GPUPERF_TRACE_LAUNCHES) == 0) return GPUPERF_LAUNCHES_NONE;
  const bool is_often = (everyone.flags & GPUPERF_TRACE_STACKS) != 0 &&
                        everyone.stack_interval_ns < GPUPERF_PACED_STACK_NS;
  return is_often ? GPUPERF_LAUNCHES_EACH : GPUPERF_LAUNCHES_PACED;
}

TraceRecorder::Options make_recorder_options(const Settings& settings) {
  return {.max_bytes = settings.trace.recorder ? settings.trace.recorder_mib << 20 : 0,
          .span_ns = settings.trace.recorder_seconds * kNsPerSecond};
}

}  // namespace

Tracing::Tracing(const Settings& settings, Parts parts)
    : parts_(std::move(parts)),
      settings_(settings),
      recorder_(make_recorder_options(settings), parts_.drops),
      builds_({.board = parts_.board,
               .functions = parts_.functions,
               .proc = parts_.proc,
               .on_missing_stacks =
                   [this](std::vector<uint64_t> ids) {
                     parts_.loop.post([this, ids = std::move(ids)] { forget_stacks(ids); });
                   }}),
      sources_({.loop = parts_.loop,
                .clock = parts_.clock,
                .drops = parts_.drops,
                .settings = settings_,
                .recorder = recorder_,
                .builds = builds_}),
      captures_(sources_, {.board = parts_.board,
                           .proc = parts_.proc,
                           .windows = parts_.windows,
                           .on_change = parts_.on_change,
                           .on_wanted = [this] { order_traces(); }}),
      profiles_(sources_, parts_.profile_period_ns, parts_.on_profile) {}

void Tracing::set_programs(Programs* programs) {
  assert(parts_.loop.on_loop());
  programs_ = programs;
  ordered_.clear();
  if (programs_ != nullptr) order_traces();
}

void Tracing::set_settings(const Settings& settings) {
  assert(parts_.loop.on_loop());
  settings_ = settings;
  captures_.apply_settings();
  order_traces();
}

void Tracing::advance() {
  assert(parts_.loop.on_loop());
  name_graphs();
  recorder_.expire(parts_.clock.mono_ns());
  captures_.advance();
  profiles_.advance();
  order_traces();
  if (!ordered_.empty()) parts_.on_change();
}

void Tracing::fill(Snapshot& snapshot) {
  snapshot.captures = captures_.rows();
  snapshot.recorder = recorder_.row(parts_.clock.mono_ns());
  recorder_.fill(snapshot.self);
  captures_.fill(snapshot.self);
  snapshot.self.add(Bound::kBuildQueue, builds_.take_highest_queued(), BuildThread::kMaxJobs);
}

// The kernel side traces what the recorder and the captures want together.
void Tracing::order_traces() {
  const auto wanted = captures_.wanted();
  const bool is_changed = wanted != ordered_;
  if (is_changed) {
    order_bursts(wanted);
    hold_sessions(wanted);
  }
  ordered_ = wanted;
  if (parts_.on_orders) parts_.on_orders();
  if (programs_ == nullptr) return;
  const gpuperf_trace_order everyone = make_order_for_everyone(settings_, wanted);
  programs_->set_trace(everyone);
  parts_.on_launch_reports(get_launch_reports(everyone, wanted));
  if (!is_changed) return;
  programs_->clear_trace_of_all();
  for (const Captures::Wanted& one : wanted) {
    if (!one.cpu || one.all_processes) continue;
    std::vector<uint32_t> pids;
    for (const ProcessKey& process : one.processes) pids.push_back(process.pid);
    const gpuperf_trace_order own{
        .flags = kTraceAll | (one.with_children ? GPUPERF_TRACE_INHERIT : 0),
        .long_call_ns = everyone.long_call_ns};
    if (!programs_->set_trace_of(pids, own)) {
      log_warn("capture does not trace all its processes", {{"reason", "too many"}});
    }
  }
}

// Sessions of new captures that want the kernels inside graphs, or samples.
void Tracing::order_bursts(const std::vector<Captures::Wanted>& wanted) {
  for (const Captures::Wanted& one : wanted) {
    const uint32_t flags = (one.nodes ? GPUPERF_SESSION_BURST_NODES : 0) |
                           (one.samples ? GPUPERF_SESSION_BURST_SAMPLES : 0);
    if (flags == 0 || std::ranges::find(ordered_, one) != ordered_.end()) continue;
    const SessionOrder burst{.burst_flags = flags, .burst_ms = GPUPERF_SESSION_BURST_MS_MAX};
    if (one.all_processes) parts_.post_session_order({}, burst);
    for (const ProcessKey& process : one.processes) {
      parts_.post_session_order({.pid = process.pid}, burst);
    }
  }
}

// They collect all the time while they are captured.
void Tracing::hold_sessions(const std::vector<Captures::Wanted>& wanted) {
  if (parts_.windows == nullptr) return;
  std::vector<SessionWindows::Target> targets;
  for (const Captures::Wanted& one : wanted) {
    if (one.gpu) targets.push_back({one.all_processes, one.processes});
  }
  parts_.windows->hold_open(targets, parts_.clock.mono_ns());
}

// Named at once: graphs are captured when a program starts, and launched for days.
void Tracing::name_graphs() {
  for (const CapturedGraphPtr& graph : recorder_.graphs().take_ended()) {
    std::vector<StackRequest> requests;
    for (const CapturedGraph::Site& site : graph->sites) {
      requests.emplace_back(TakenStack{site.site.stack_id});
    }
    // Without room their names are asked for with the capture they are in, if they can be had then.
    (void)builds_.post_resolve(std::move(requests), [this, graph](Symbolizer::Stacks stacks) {
      parts_.loop.post([this, graph, stacks = std::move(stacks)] {
        recorder_.graphs().set_stacks(graph, stacks);
      });
    });
  }
}

// The kernel side sends them again, so that the next capture has them.
void Tracing::forget_stacks(const std::vector<uint64_t>& stack_ids) {
  if (programs_ == nullptr) return;
  for (const uint64_t id : stack_ids) forget_sent_stack(*programs_, id);
}

void Tracing::note_slow_call(const SlowCall& call) {
  assert(parts_.loop.on_loop());
  const uint64_t from_ns = settings_.trace.freeze_on_slow_ms * 1'000'000;
  if (from_ns == 0 || call.event.duration_ns < from_ns || captures_.store() == nullptr) return;
  freeze_rarely(
      slow_mono_ns_,
      call.function + " took " + std::to_string(call.event.duration_ns / 1'000'000) + " ms",
      "slow_call");
}

bool Tracing::post_alert(const std::string& name) {
  const auto now_ns = static_cast<uint64_t>(parts_.clock.mono_ns());
  uint64_t last_ns = alert_mono_ns_;
  if (is_within_pause(last_ns, now_ns)) return false;
  if (!alert_mono_ns_.compare_exchange_strong(last_ns, now_ns)) return false;
  parts_.loop.post([this, name] { freeze(name, "alert"); });
  return true;
}

void Tracing::note_breach(const std::string& name) {
  assert(parts_.loop.on_loop());
  freeze_rarely(breach_mono_ns_, name, "qos_rule");
}

void Tracing::freeze_rarely(uint64_t& last_mono_ns, const std::string& name,
                            const std::string& trigger) {
  const auto now_ns = static_cast<uint64_t>(parts_.clock.mono_ns());
  if (is_within_pause(last_mono_ns, now_ns)) return;
  last_mono_ns = now_ns;
  freeze(name, trigger);
}

void Tracing::freeze(const std::string& name, const std::string& trigger) {
  const auto row = captures_.freeze({.name = name, .trigger = trigger});
  if (!row.ok())
    log_warn("flight recorder not frozen", {{"error", std::string(row.status().message())}});
}

}  // namespace gpuperf
