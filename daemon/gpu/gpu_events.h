#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/gpu/gpu_reader.h"
#include "daemon/gpu/leavable_thread.h"

namespace gpuperf {

// Waits for what the driver tells of by itself: XIDs and memory errors.
//
// Owns its thread and an event set of the driver, between start and stop. GPUs or drivers without
// events are no error: then there are none.
// Bounds: the driver keeps events while nobody waits, as many as it likes; they are taken one by
// one and handed on at once.
class GpuEvents {
 public:
  struct Event {
    GpuUuid uuid{};
    bool is_xid = false;  // or a memory error
    uint64_t xid = 0;
    int64_t mono_ns = 0;
    int64_t unix_ns = 0;
  };
  // On this object's thread, even after a stop that did not succeed: it owns what it uses.
  using Listener = std::function<void(const Event&)>;

  // UNAVAILABLE: this driver tells of nothing, and why.
  static Result<std::unique_ptr<GpuEvents>> start(std::shared_ptr<const NvmlApi> api,
                                                  const std::vector<GpuHandle>& gpus,
                                                  Listener listener);
  // False: the thread hangs in the driver and was left behind; the session must not be closed.
  bool stop();

 private:
  explicit GpuEvents(LeavableThread::Run run) : thread_(std::move(run)) {}
  LeavableThread thread_;
};

}  // namespace gpuperf
