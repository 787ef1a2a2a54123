#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/gpu/nvml_api.h"
#include "daemon/model/gpu_counters.h"

namespace gpuperf {

// Reads the hardware counters of one GPU, or of one GPU instance of it in MIG mode, through NVML's
// GPU Performance Monitoring: a sample each time, and averages between it and the one before.
//
// Thread: one, which may hang in any call. Owns two samples of the driver, of one session with it:
// free_samples() gives them back before that session ends; without it they are left to the driver,
// which a thread that hangs needs. Promises: a driver or GPU that has no GPM costs one call a
// session. A sample that fails, or has no value, as when a profiler holds the counters, is counted
// and is tried again after kFirstRetry, twice as long each time up to kMaxRetry.
class GpuCounterReader {
 public:
  static constexpr std::chrono::nanoseconds kFirstRetry = std::chrono::seconds(2);
  static constexpr std::chrono::nanoseconds kMaxRetry = std::chrono::seconds(60);
  // Makes one call of the driver. `is_regular`: it tells what a sample costs; not so the first
  // ones, by which the driver sets its counters up.
  using Call = std::function<NvmlReturn(bool is_regular, const char* name,
                                        const std::function<NvmlReturn()>&)>;

  GpuCounterReader(std::shared_ptr<const NvmlApi> api, NvmlDevice device,
                   std::optional<uint32_t> gpu_instance);

  // Takes a sample and sets what is now known. Counts of `state` go on.
  void read(const Call& call, int64_t now_mono_ns, GpuCounterState& state);
  void free_samples(const Call& call);

 private:
  // Each is false where there is nothing more to do; `state` then has the reason.
  bool find_support(const Call& call, int64_t now_mono_ns, GpuCounterState& state);
  bool alloc_samples(const Call& call, int64_t now_mono_ns, GpuCounterState& state);
  bool take_sample(const Call& call, int64_t now_mono_ns, GpuCounterState& state);
  void read_values(const Call& call, int64_t now_mono_ns, GpuCounterState& state);
  void fail(int64_t now_mono_ns, const std::string& what, GpuCounterState& state);

  // Set once in the constructor.
  const std::shared_ptr<const NvmlApi> api_;
  const NvmlDevice device_;
  const std::optional<uint32_t> gpu_instance_;
  // Of this session.
  bool knows_support_ = false;
  bool is_supported_ = false;
  std::array<NvmlGpmSample, 2> samples_{};
  size_t newest_ = 0;               // of samples_
  int64_t sampled_mono_ns_ = 0;     // when samples_[newest_] was taken; 0 = it was not
  int64_t retry_mono_ns_ = 0;       // nothing is tried before
  std::chrono::nanoseconds retry_;  // the next pause
};

}  // namespace gpuperf
