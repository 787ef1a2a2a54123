// What the GPU did during slow calls of injected processes: from the flight recorder, once all of
// that time has come.

#include <algorithm>
#include <utility>

#include "daemon/process_cpu.h"
#include "daemon/state/other_gpu_work.h"
#include "daemon/trace_build.h"
#include "daemon/tracing.h"
#include "daemon/view/gpu_during_call.h"

namespace gpuperf {
namespace {

// One part of that many of a CPU's time may go into slow calls.
constexpr uint64_t kCpuParts = 10;

}  // namespace

bool Tracing::hold(SlowCall& call) {
  return is_holding_ && held_.add(call, now().mono_ns, make_capture_options(settings_).settle_ns);
}

void Tracing::stop_holding() {
  is_holding_ = false;
  for (SlowCall& call : held_.release_all()) parts_.on_slow_call(std::move(call));
}

void Tracing::advance_slow_calls() {
  const uint64_t now_ns = now().mono_ns;
  for (SlowCall& call : held_.give_up(now_ns)) parts_.on_slow_call(std::move(call));
  if (now_ns < next_batch_mono_ns_) return;
  if (auto batch = held_.take_due(now_ns)) read_slow_calls(*std::move(batch));
}

void Tracing::read_slow_calls(SlowCallHold::Batch batch) {
  auto build = make_build({.trigger = "slow_call",
                           .start_mono_ns = batch.from_mono_ns,
                           .end_mono_ns = batch.to_mono_ns,
                           .all_processes = false,
                           .processes = {batch.process},
                           .with_overlap = true,
                           .lost_events = batch.lost_events},
                          std::move(batch.window));
  std::vector<CallInCapture> calls;
  for (SlowCallHold::Held& held : batch.calls) {
    calls.push_back({.start_mono_ns = held.start_mono_ns,
                     .duration_ns = held.duration_ns,
                     .tid = held.tid,
                     .waits_for_gpu = held.waits_for_gpu,
                     .missing = std::move(held.missing)});
  }
  const uint64_t id = batch.id;
  build->on_built = [this, id, calls = std::move(calls), process = batch.process](
                        const Build& built, const Capture& capture) {
    const uint64_t begun_ns = read_thread_cpu_ns();
    const auto others = list_other_gpu_work(built.window, process, built.scope.start_mono_ns,
                                            built.scope.end_mono_ns, built.names.get_owner);
    auto found = list_gpu_during_calls(capture, calls, others, parts_.slow_call_work);
    post_found(id, std::move(found), built.cpu_ns + read_thread_cpu_ns() - begun_ns);
  };
  build->on_refused = [this, id] { post_found(id, {}, 0); };
  if (!jobs_.try_push([this, build] { join(build); })) post_found(id, {}, 0);
}

// Any thread.
void Tracing::post_found(uint64_t batch_id, std::vector<GpuDuringCall> found, uint64_t cpu_ns) {
  loop_->post([this, batch_id, found = std::move(found), cpu_ns]() mutable {
    next_batch_mono_ns_ = now().mono_ns + (kCpuParts - 1) * cpu_ns;
    for (SlowCall& call : held_.finish(batch_id, std::move(found))) {
      parts_.on_slow_call(std::move(call));
    }
  });
}

}  // namespace gpuperf
