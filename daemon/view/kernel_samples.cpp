#include "daemon/view/kernel_samples.h"

#include <algorithm>
#include <tuple>

#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

constexpr double kFilled = 0.8;

// Of one GPU, by start; they do not overlap.
using Windows = std::vector<const GpuCounterRecord*>;

std::map<GpuUuid, Windows> list_dram_windows(const Capture& capture) {
  std::map<GpuUuid, Windows> gpus;
  for (const GpuCounterRecord& record : capture.gpu_counters) {
    const bool has_dram = record.window.values[static_cast<size_t>(GpuCounter::kDram)].has_value();
    if (has_dram && !record.gpu_instance) gpus[record.uuid].push_back(&record);
  }
  return gpus;
}

}  // namespace

std::map<uint32_t, KernelStalls> sum_samples(const Capture& capture) {
  std::map<uint32_t, KernelStalls> kernels;
  for (const CaptureStall& row : capture.stalls) {
    if (row.stall >= GPUPERF_STALL_COUNT || row.samples == 0) continue;
    KernelStalls& sums = kernels[row.kernel];
    sums.samples += row.samples;
    sums.stalls[row.stall].samples += row.samples;
    sums.stalls[row.stall].idle_samples += row.idle_samples;
  }
  return kernels;
}

std::vector<StallTime> split_by_stall(const KernelStalls& stalls, uint64_t time_ns) {
  std::vector<StallTime> parts;
  uint64_t samples = 0, given_ns = 0;
  for (uint32_t stall = 0; stall < stalls.stalls.size(); ++stall) {
    if (stalls.stalls[stall].samples == 0) continue;
    samples += stalls.stalls[stall].samples;
    const long double share = static_cast<long double>(samples) / stalls.samples;
    const uint64_t until_ns =
        samples >= stalls.samples ? time_ns : static_cast<uint64_t>(share * time_ns);
    parts.push_back({.stall = stall, .time_ns = until_ns - given_ns});
    given_ns = until_ns;
  }
  std::ranges::stable_sort(parts, std::ranges::greater(), &StallTime::time_ns);
  return parts;
}

std::map<uint32_t, DramUse> find_dram_use(const Capture& capture) {
  const std::map<GpuUuid, Windows> gpus = list_dram_windows(capture);
  std::map<std::tuple<const GpuCounterRecord*, uint32_t>, uint64_t> times_ns;  // of a kernel in it
  for (const CaptureWork& work : capture.work) {
    const CaptureStream* const stream = find_row(capture.streams, work.stream);
    if (work.kind != WorkKind::kKernel || stream == nullptr) continue;
    const CaptureDevice* const device = find_row(capture.devices, stream->device);
    const auto gpu = device == nullptr ? gpus.end() : gpus.find(device->uuid);
    if (gpu == gpus.end()) continue;
    const auto start_ns = static_cast<int64_t>(work.start_mono_ns);
    const int64_t end_ns = start_ns + static_cast<int64_t>(work.duration_ns);
    auto window = std::ranges::partition_point(gpu->second, [&](const GpuCounterRecord* record) {
      return record->window.end_mono_ns <= start_ns;
    });
    for (; window != gpu->second.end() && (*window)->window.start_mono_ns < end_ns; ++window) {
      times_ns[{*window, work.kernel}] +=
          static_cast<uint64_t>(std::min(end_ns, (*window)->window.end_mono_ns) -
                                std::max(start_ns, (*window)->window.start_mono_ns));
    }
  }
  std::map<uint32_t, DramUse> uses;
  for (const auto& [key, time_ns] : times_ns) {
    const auto& [record, kernel] = key;
    const auto length_ns =
        static_cast<double>(record->window.end_mono_ns - record->window.start_mono_ns);
    if (static_cast<double>(time_ns) < kFilled * length_ns) continue;
    const uint64_t millionths = *record->window.values[static_cast<size_t>(GpuCounter::kDram)];
    DramUse& use = uses[kernel];
    ++use.windows;
    use.ratio += (static_cast<double>(millionths) / kRatioMillion - use.ratio) / use.windows;
  }
  return uses;
}

}  // namespace gpuperf
