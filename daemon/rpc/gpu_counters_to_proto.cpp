#include "daemon/rpc/gpu_counters_to_proto.h"

#include <algorithm>

#include "daemon/model/display_text.h"

namespace gpuperf {

v1::GpuCounters to_proto(const GpuCounterWindow& window) {
  v1::GpuCounters message;
  const auto set_ratio = [&](void (v1::GpuCounters::*setter)(double), GpuCounter counter) {
    const auto& value = window.values[static_cast<size_t>(counter)];
    if (value) (message.*setter)(static_cast<double>(*value) / kRatioMillion);
  };
  const auto set_rate = [&](void (v1::GpuCounters::*setter)(uint64_t), GpuCounter counter) {
    const auto& value = window.values[static_cast<size_t>(counter)];
    if (value) (message.*setter)(*value);
  };
  using Message = v1::GpuCounters;
  set_ratio(&Message::set_graphics_engine_active_ratio, GpuCounter::kGraphicsEngine);
  set_ratio(&Message::set_sm_active_ratio, GpuCounter::kSm);
  set_ratio(&Message::set_sm_occupancy_ratio, GpuCounter::kSmOccupancy);
  set_ratio(&Message::set_tensor_active_ratio, GpuCounter::kTensor);
  set_ratio(&Message::set_fp64_active_ratio, GpuCounter::kFp64);
  set_ratio(&Message::set_fp32_active_ratio, GpuCounter::kFp32);
  set_ratio(&Message::set_fp16_active_ratio, GpuCounter::kFp16);
  set_ratio(&Message::set_integer_active_ratio, GpuCounter::kInteger);
  set_ratio(&Message::set_dram_active_ratio, GpuCounter::kDram);
  set_rate(&Message::set_pcie_transmit_bytes_per_second, GpuCounter::kPcieTransmit);
  set_rate(&Message::set_pcie_receive_bytes_per_second, GpuCounter::kPcieReceive);
  set_rate(&Message::set_nvlink_transmit_bytes_per_second, GpuCounter::kNvlinkTransmit);
  set_rate(&Message::set_nvlink_receive_bytes_per_second, GpuCounter::kNvlinkReceive);
  message.set_window_ns(static_cast<uint64_t>(window.end_mono_ns - window.start_mono_ns));
  return message;
}

v1::GpuCounters to_proto(const GpuCounterState& state, int64_t now_mono_ns) {
  v1::GpuCounters message;
  if (state.window.end_mono_ns != 0) {
    message = to_proto(state.window);
    message.set_age_ns(
        static_cast<uint64_t>(std::max<int64_t>(now_mono_ns - state.window.end_mono_ns, 0)));
  }
  message.set_reason(to_valid_utf8(state.reason));
  message.set_failing(state.has_failed);
  message.set_samples(state.samples);
  message.set_failed_samples(state.failed_samples);
  return message;
}

}  // namespace gpuperf
