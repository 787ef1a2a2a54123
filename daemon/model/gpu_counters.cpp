#include "daemon/model/gpu_counters.h"

#include <spdlog/fmt/fmt.h>

#include <iterator>

namespace gpuperf {
namespace {

constexpr GpuCounterRow kGpuCounterRows[] = {
    {GpuCounter::kGraphicsEngine, "graphics engine", "GR_ENGINE_ACTIVE", true},
    {GpuCounter::kSm, "SMs", "SM_ACTIVE", true},
    {GpuCounter::kSmOccupancy, "SM occupancy", "SM_OCCUPANCY", true},
    {GpuCounter::kTensor, "tensor pipe", "PIPE_TENSOR_ACTIVE", true},
    {GpuCounter::kFp64, "FP64 pipe", "PIPE_FP64_ACTIVE", true},
    {GpuCounter::kFp32, "FP32 pipe", "PIPE_FP32_ACTIVE", true},
    {GpuCounter::kFp16, "FP16 pipe", "PIPE_FP16_ACTIVE", true},
    {GpuCounter::kInteger, "integer pipe", "PIPE_INT_ACTIVE", true},
    {GpuCounter::kDram, "DRAM", "DRAM_ACTIVE", true},
    {GpuCounter::kPcieTransmit, "PCIe sent", "PCIE_TX_BYTES", false},
    {GpuCounter::kPcieReceive, "PCIe received", "PCIE_RX_BYTES", false},
    {GpuCounter::kNvlinkTransmit, "NVLink sent", "NVLINK_TX_BYTES", false},
    {GpuCounter::kNvlinkReceive, "NVLink received", "NVLINK_RX_BYTES", false},
};
static_assert(std::size(kGpuCounterRows) == kGpuCounters);

}  // namespace

std::span<const GpuCounterRow> gpu_counter_rows() { return kGpuCounterRows; }

std::string describe_gpu_counter(GpuCounter counter, const GpuCounterValues& values) {
  const std::optional<uint64_t>& value = values[static_cast<size_t>(counter)];
  if (!value) return "";
  const GpuCounterRow& row = kGpuCounterRows[static_cast<size_t>(counter)];
  if (row.is_ratio) {
    return fmt::format("{} {:.0f} %", row.words, static_cast<double>(*value) * 100 / kRatioMillion);
  }
  return fmt::format("{} {:.2f} GB/s", row.words, static_cast<double>(*value) / 1e9);
}

}  // namespace gpuperf
