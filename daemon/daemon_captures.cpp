// The daemon's dealings with captures.

#include <cstdlib>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/daemon.h"
#include "daemon/otlp/spans.h"

namespace gpuperf {

Status Daemon::start_tracing() {
  tracing_ = std::make_unique<Tracing>(
      start_settings_,
      Tracing::Parts{
          .clock = clock_,
          .drops = drops_,
          .board = board_,
          .functions = registry_,
          .post_session_order =
              [this](const SessionTarget& target, const SessionOrder& order) {
                post_session_order(target, order, [](const Result<size_t>&) {});
              },
          .slow_call_work =
              otlp::are_spans_wanted(start_settings_, std::getenv) ? otlp::kMaxChildSpans : 0,
          .on_change = [this] { changed_ = true; },
          .on_slow_call = [this](SlowCall call) { keep_slow_call(std::move(call)); },
          .profile_period_ns = otlp_ ? static_cast<uint64_t>(std::chrono::nanoseconds(
                                                                 otlp::get_profile_period(
                                                                     start_settings_, std::getenv))
                                                                 .count())
                                     : 0,
          .on_profile = [this](const Capture& capture) { otlp_->on_profile(capture); }});
  const auto problem = tracing_->start(*loop_);
  if (!problem) return absl::OkStatus();
  log_warn("no store of captures", {{"error", problem->message}});
  problems_.push_back(*problem);
  return absl::OkStatus();
}
void Daemon::stop_tracing() {
  tracing_->stop();
  loop_->run_posted();
  tracing_.reset();
}

void Daemon::post_start_capture(const CaptureOrder& order, CaptureDone done) {
  loop_->post([this, order, done = std::move(done)] {
    const auto row = tracing_->start_capture(order);
    judge_budget(clock_.mono_ns());
    publish();
    done(row);
  });
}

void Daemon::post_stop_capture(uint64_t id, CaptureDone done) {
  loop_->post([this, id, done = std::move(done)] {
    const auto row = tracing_->stop_capture(id);
    publish();
    done(row);
  });
}

void Daemon::post_freeze_recorder(const FreezeOrder& order, CaptureDone done) {
  loop_->post([this, order, done = std::move(done)] {
    const auto row = tracing_->freeze(order);
    publish();
    done(row);
  });
}

void Daemon::post_delete_capture(uint64_t id, CaptureDone done) {
  loop_->post([this, id, done = std::move(done)] {
    const auto row = tracing_->remove(id);
    publish();
    done(row);
  });
}

}  // namespace gpuperf
