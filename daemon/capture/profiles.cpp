#include "daemon/capture/profiles.h"

#include <utility>

#include "daemon/base/log.h"
#include "daemon/capture/captures.h"

namespace gpuperf {
namespace {

// Of events from before the period: who launched what runs in it.
constexpr uint64_t kBeforeBytes = uint64_t{1} << 20;

}  // namespace

void Profiles::advance() {
  if (period_ns_ == 0 || !sources_.recorder.is_recording()) return;
  const auto now_ns = static_cast<uint64_t>(sources_.clock.mono_ns());
  if (current_.pin == nullptr) {
    current_ = begin(now_ns);
    return;
  }
  const uint64_t end_ns = current_.start_mono_ns + period_ns_;
  if (now_ns < end_ns + make_capture_options(sources_.settings).settle_ns) return;
  const Period ended = std::exchange(current_, begin(end_ns));
  sources_.builds.post_build(
      {.scope = {.trigger = "profile",
                 .start_mono_ns = ended.start_mono_ns,
                 .end_mono_ns = end_ns,
                 .start_unix_ns = ended.start_unix_ns,
                 .lost_events = ended.pin->lost_events,
                 .lost_hits = current_.lost_hits_before - ended.lost_hits_before},
       .window = sources_.recorder.take(ended.pin),
       .on_built = [this](const BuildThread::Build&,
                          const Capture& capture) { on_profile_(capture); },
       .on_refused =
           [] {
             log_warn("profile skipped", {{"reason", "captures are waiting"}});
           }});
}

// It holds as much as the recorder may.
Profiles::Period Profiles::begin(uint64_t from_mono_ns) const {
  const Captures::Now now = read_now(sources_.clock);
  return {.start_mono_ns = from_mono_ns,
          .start_unix_ns = now.unix_ns - (now.mono_ns - from_mono_ns),
          .lost_hits_before = sources_.drops.get(DropCause::kBpfTraceRingFull),
          .pin = sources_.recorder.pin(from_mono_ns, sources_.settings.trace.recorder_mib << 20,
                                       kBeforeBytes)};
}

}  // namespace gpuperf
