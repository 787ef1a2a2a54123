#include "daemon/app/tracing_part.h"

#include <cstdlib>
#include <utility>

#include "daemon/app/otlp_part.h"
#include "daemon/app/probing_part.h"
#include "daemon/app/sessions_part.h"
#include "daemon/app/slow_calls_part.h"
#include "daemon/otlp/spans.h"

namespace gpuperf {
namespace {

// A capture that hosts make together begins that much later at most.
constexpr std::chrono::milliseconds kTracePeriod{20};
// While there is no capture to begin or end and no slow call is held: waking up 50 times a second
// costs 0.3 % of a core.
constexpr std::chrono::milliseconds kRestPeriod{100};

}  // namespace

Status TracingPart::start() {
  const Settings& settings = core_.settings;
  const std::chrono::nanoseconds profile_period =
      otlp_.exporter() ? otlp::get_profile_period(settings, std::getenv)
                       : std::chrono::nanoseconds(0);
  tracing_ = std::make_unique<Tracing>(
      settings,
      Tracing::Parts{
          .loop = *core_.loop,
          .clock = core_.clock,
          .drops = core_.drops,
          .board = core_.board,
          .proc = core_.reader.make_files(),
          .functions = core_.registry,
          .post_session_order =
              [this](const SessionTarget& target, const SessionOrder& order) {
                sessions_.post_order(target, order, [](const Result<size_t>&) {});
              },
          .windows = &sessions_.windows(),
          .on_change = [this] { core_.changed = true; },
          .on_launch_reports =
              [this](gpuperf_launch_reports wanted) { probing_.set_launch_reports(wanted); },
          .on_orders = [this] { set_period(); },
          .profile_period_ns = static_cast<uint64_t>(profile_period.count()),
          .on_profile = [this](const Capture& capture) { otlp_.exporter()->on_profile(capture); }});
  if (const auto& problem = tracing_->captures().problem()) {
    add_problem(*problem, "captures are not stored");
  }
  tracing_->follow(sessions_.registry());
  slow_calls_.start_pipeline(*tracing_, sessions_.registry());
  ASSIGN_OR_RETURN(const size_t timer, core_.loop->make_timer(kTracePeriod, [this] {
    tracing_->advance();
    slow_calls_.pipeline().advance();
    set_period();
  }));
  timer_ = timer;
  return absl::OkStatus();
}

void TracingPart::set_period() {
  if (!timer_) return;
  const bool is_busy =
      tracing_->captures().has_unfinished() || slow_calls_.pipeline().held_count() > 0;
  core_.loop->set_period(*timer_, is_busy ? kTracePeriod : kRestPeriod);
}

void TracingPart::stop() {
  tracing_->stop();
  core_.loop->run_posted();
}

}  // namespace gpuperf
