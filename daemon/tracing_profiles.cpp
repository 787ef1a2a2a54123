// A profile of every period, one after the other: from the flight recorder, once all of that time
// has come.

#include <utility>

#include "daemon/base/log.h"
#include "daemon/trace_build.h"
#include "daemon/tracing.h"

namespace gpuperf {
namespace {

// Of events from before the period: who launched what runs in it.
constexpr uint64_t kBeforeBytes = uint64_t{1} << 20;

}  // namespace

void Tracing::advance_profiles() {
  if (parts_.profile_period_ns == 0 || !recorder_.is_recording()) return;
  if (profile_.pin == nullptr) return begin_profile(now().mono_ns);
  const uint64_t end_ns = profile_.start_mono_ns + parts_.profile_period_ns;
  if (now().mono_ns < end_ns + make_capture_options(settings_).settle_ns) return;
  Profile ended = std::exchange(profile_, {});
  begin_profile(end_ns);
  auto build = make_build({.trigger = "profile",
                           .start_mono_ns = ended.start_mono_ns,
                           .end_mono_ns = end_ns,
                           .start_unix_ns = ended.start_unix_ns,
                           .lost_events = ended.pin->lost_events,
                           .lost_hits = profile_.lost_hits_before - ended.lost_hits_before},
                          recorder_.take(ended.pin));
  build->on_built = [this](const Build&, const Capture& capture) { parts_.on_profile(capture); };
  build->on_refused = [] { log_warn("profile left out", {{"reason", "captures wait"}}); };
  if (!jobs_.try_push([this, build] { join(build); })) build->on_refused();
}

// It holds as much as the recorder may.
void Tracing::begin_profile(uint64_t from_mono_ns) {
  const Captures::Now moment = now();
  profile_ = {.start_mono_ns = from_mono_ns,
              .start_unix_ns = moment.unix_ns - (moment.mono_ns - from_mono_ns),
              .lost_hits_before = count_lost_hits(),
              .pin = recorder_.pin(from_mono_ns, settings_.trace.recorder_mib << 20, kBeforeBytes)};
}

}  // namespace gpuperf
