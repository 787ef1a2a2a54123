#include "daemon/slow/pipeline.h"

#include <cassert>
#include <optional>
#include <utility>

#include "daemon/base/thread_cpu.h"
#include "daemon/capture/captures.h"
#include "daemon/slow/explain.h"
#include "daemon/slow/gpu_during_call.h"
#include "daemon/slow/other_gpu_work.h"

namespace gpuperf {
namespace {

// One part of that many of a CPU's time may go into what the GPU did.
constexpr uint64_t kCpuParts = 10;

SlowCall explained(SlowCall call) {
  call.explanation = explain(call);
  return call;
}

}  // namespace

SlowCallPipeline::SlowCallPipeline(const SlowCalls::Limits& limits, Parts parts)
    : parts_(std::move(parts)),
      namer_({.functions = parts_.functions,
              .kernel_names = parts_.kernel_names,
              .clock = parts_.sources.clock,
              .drops = parts_.sources.drops,
              .post_resolve = parts_.post_resolve,
              .loop = parts_.sources.loop},
             [this](SlowCall call) { hold(std::move(call)); }),
      held_(parts_.sources.recorder, parts_.sources.drops),
      calls_(limits, parts_.sources.drops) {}

void SlowCallPipeline::take(SlowInFlightCalls& found) {
  assert(is_on_loop());
  const int64_t now_mono_ns = parts_.sources.clock.mono_ns();
  for (SlowCallEvent& event : found.calls) {
    if (auto known = calls_.see_in_flight(event, now_mono_ns)) {
      calls_.refresh(explained(*std::move(known)));
    } else {
      take(std::move(event));
    }
  }
  for (const CallPtr& gone : calls_.collect_gone(now_mono_ns)) store({gone});
}

void SlowCallPipeline::hold(SlowCall call) {
  assert(is_on_loop());
  parts_.on_named(call);
  const uint64_t settle_ns = make_capture_options(parts_.sources.settings).settle_ns;
  if (is_holding_ && held_.add(call, now_ns(), settle_ns)) return;
  keep(std::move(call));
}

void SlowCallPipeline::stop_holding() {
  assert(is_on_loop());
  is_holding_ = false;
  keep_all(held_.release_all());
}

void SlowCallPipeline::advance() {
  assert(is_on_loop());
  const uint64_t now = now_ns();
  keep_all(held_.give_up(now));
  if (now < next_batch_mono_ns_) return;
  if (auto batch = held_.take_due(now)) read_gpu(*std::move(batch));
}

void SlowCallPipeline::read_gpu(SlowCallHold::Batch batch) {
  parts_.sources.builds.post_build(
      {.scope = {.trigger = "slow_call",
                 .start_mono_ns = batch.from_mono_ns,
                 .end_mono_ns = batch.to_mono_ns,
                 .all_processes = false,
                 .processes = {batch.process},
                 .with_overlap = true,
                 .lost_events = batch.lost_events},
       .window = std::move(batch.window),
       .on_built =
           [this, id = batch.id, process = batch.process, calls = std::move(batch.calls)](
               const BuildThread::Build& build, const Capture& capture) {
             const uint64_t begun_ns = read_thread_cpu_ns();
             const auto others =
                 list_other_gpu_work(build.window, process, build.scope.start_mono_ns,
                                     build.scope.end_mono_ns, build.names.get_owner);
             auto found = list_gpu_during_calls(capture, calls, others, parts_.max_gpu_work);
             post_found(id, std::move(found), build.cpu_ns + read_thread_cpu_ns() - begun_ns);
           },
       .on_refused = [this, id = batch.id] { post_found(id, {}, 0); }});
}

// Any thread.
void SlowCallPipeline::post_found(uint64_t batch_id, std::vector<GpuDuringCall> found,
                                  uint64_t cpu_ns) {
  parts_.sources.loop.post([this, batch_id, found = std::move(found), cpu_ns]() mutable {
    next_batch_mono_ns_ = now_ns() + (kCpuParts - 1) * cpu_ns;
    keep_all(held_.finish(batch_id, std::move(found)));
  });
}

void SlowCallPipeline::keep_all(std::vector<SlowCall> calls) {
  for (SlowCall& call : calls) keep(std::move(call));
}

void SlowCallPipeline::keep(SlowCall call) {
  assert(is_on_loop());
  call.is_stored = parts_.post_write != nullptr;
  const auto kept = calls_.add(explained(std::move(call)), parts_.sources.clock.mono_ns());
  if (kept.call != nullptr) store(kept);
}

void SlowCallPipeline::store(const SlowCalls::Kept& kept) {
  parts_.on_change();
  if (!parts_.post_write) return notify(kept, false);
  const auto on_written = [this, kept](bool is_stored) {
    parts_.sources.loop.post([this, kept, is_stored] {
      if (!is_stored) parts_.sources.drops.add(DropCause::kSlowStoreFailed);
      notify(kept, is_stored);
    });
  };
  if (parts_.post_write(kept.call, on_written)) return;
  parts_.sources.drops.add(DropCause::kSlowStoreQueueFull);
  notify(kept, false);
}

void SlowCallPipeline::notify(const SlowCalls::Kept& kept, bool is_stored) {
  assert(is_on_loop());
  const bool as_kept = kept.call->is_stored == is_stored;
  const CallPtr call = as_kept ? kept.call : calls_.mark_unstored(kept.call);
  if (kept.is_news) parts_.on_call(call);
}

}  // namespace gpuperf
