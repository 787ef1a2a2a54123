#include "daemon/gpu/gpu_events.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/base/clock.h"

namespace gpuperf {
namespace {

// How long a wait lasts at most: as long as stopping may take unnoticed.
constexpr unsigned kWaitMs = 500;
constexpr std::chrono::milliseconds kStopPatience{1500};
// After an error, before asking again: a wait that fails does so at once.
constexpr std::chrono::seconds kPauseAfterError{5};

// An event set of the driver, freed with it.
struct EventSet {
  std::shared_ptr<const NvmlApi> api;
  NvmlEventSet set = nullptr;
  ~EventSet() {
    if (set != nullptr) (void)api->event_set_free(set);  // nothing could be done about an error
  }
};

void wait_for_events(const EventSet& events, const std::vector<GpuHandle>& gpus,
                     const GpuEvents::Listener& listener, LeavableThread::Signal& signal) {
  const SystemClock clock;
  while (!signal.is_stopping()) {
    NvmlEventData data;
    const NvmlReturn code = events.api->event_wait(events.set, &data, kWaitMs);
    if (code == kNvmlTimeout) continue;
    if (code != kNvmlSuccess) {
      // A GPU that is lost, mostly: the reader finds out, and opens the session anew.
      if (!signal.wait_for(kPauseAfterError)) return;
      continue;
    }
    const auto gpu = std::ranges::find(gpus, data.device, &GpuHandle::device);
    if (gpu == gpus.end()) continue;  // none that was registered
    listener({.uuid = gpu->uuid,
              .is_xid = data.event_type == kNvmlEventXid,
              .xid = data.event_data,
              .mono_ns = clock.mono_ns(),
              .unix_ns = clock.unix_ns()});
  }
}

}  // namespace

Result<std::unique_ptr<GpuEvents>> GpuEvents::start(std::shared_ptr<const NvmlApi> api,
                                                    const std::vector<GpuHandle>& gpus,
                                                    Listener listener) {
  if (!api->event_set_create || !api->event_set_free || !api->register_events || !api->event_wait) {
    return absl::UnavailableError("this driver's library has no events");
  }
  auto events = std::make_shared<EventSet>();
  events->api = std::move(api);
  const NvmlReturn created = events->api->event_set_create(&events->set);
  if (created != kNvmlSuccess) {
    return absl::UnavailableError("nvmlEventSetCreate: " + describe_nvml(*events->api, created));
  }
  std::vector<GpuHandle> heard;
  for (const GpuHandle& gpu : gpus) {
    unsigned long long wanted = kNvmlEventXid | kNvmlEventSingleBitEcc | kNvmlEventDoubleBitEcc;
    unsigned long long supported = wanted;
    // Registering an event that the GPU does not have is an error, and then none is registered.
    if (events->api->supported_events) {
      (void)events->api->supported_events(gpu.device, &supported);  // else: try
    }
    wanted &= supported;
    if (wanted != 0 &&
        events->api->register_events(gpu.device, wanted, events->set) == kNvmlSuccess) {
      heard.push_back(gpu);
    }
  }
  if (heard.empty()) return absl::UnavailableError("no GPU on this host reports events");
  return std::unique_ptr<GpuEvents>(new GpuEvents(
      [events, heard = std::move(heard), listener = std::move(listener)](const auto& signal) {
        wait_for_events(*events, heard, listener, *signal);
      }));
}

bool GpuEvents::stop() { return thread_.stop(kStopPatience); }

}  // namespace gpuperf
