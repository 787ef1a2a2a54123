#include "daemon/gpu/gpu_counter_reader.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace gpuperf {
namespace {

constexpr double kMillionthsPerPercent = kRatioMillion / 100.0;
constexpr double kBytesPerMib = 1 << 20;
constexpr double kMostBelievable = 1e18;  // in units of GpuCounterValues

struct CounterMetric {
  GpuCounter counter;
  unsigned metric_id;
};
constexpr CounterMetric kCounterMetrics[] = {
    {GpuCounter::kGraphicsEngine, kGpmGraphics},
    {GpuCounter::kSm, kGpmSm},
    {GpuCounter::kSmOccupancy, kGpmSmOccupancy},
    {GpuCounter::kTensor, kGpmAnyTensor},
    {GpuCounter::kFp64, kGpmFp64},
    {GpuCounter::kFp32, kGpmFp32},
    {GpuCounter::kFp16, kGpmFp16},
    {GpuCounter::kInteger, kGpmInteger},
    {GpuCounter::kDram, kGpmDram},
    {GpuCounter::kPcieTransmit, kGpmPcieTransmit},
    {GpuCounter::kPcieReceive, kGpmPcieReceive},
    {GpuCounter::kNvlinkTransmit, kGpmNvlinkTransmit},
    {GpuCounter::kNvlinkReceive, kGpmNvlinkReceive},
};
static_assert(std::size(kCounterMetrics) == kGpuCounters && kGpuCounters == kGpmMetricsAtOnce);

// In the units of GpuCounterValues; empty where the driver has no value.
std::optional<uint64_t> convert(const NvmlGpmMetric& metric, GpuCounter counter) {
  if (metric.result != kNvmlSuccess) return std::nullopt;
  const bool is_ratio = gpu_counter_rows()[static_cast<size_t>(counter)].is_ratio;
  const double value = metric.value * (is_ratio ? kMillionthsPerPercent : kBytesPerMib);
  if (!(value >= 0 && value < kMostBelievable)) return std::nullopt;  // NaN, too
  return static_cast<uint64_t>(std::llround(value));
}

}  // namespace

GpuCounterReader::GpuCounterReader(std::shared_ptr<const NvmlApi> api, NvmlDevice device,
                                   std::optional<uint32_t> gpu_instance)
    : api_(std::move(api)), device_(device), gpu_instance_(gpu_instance), retry_(kFirstRetry) {}

void GpuCounterReader::read(const Call& call, int64_t now_mono_ns, GpuCounterState& state) {
  if (now_mono_ns < retry_mono_ns_) return;
  if (!find_support(call, now_mono_ns, state)) return;
  if (!alloc_samples(call, now_mono_ns, state)) return;
  const int64_t before_mono_ns = sampled_mono_ns_;
  if (!take_sample(call, now_mono_ns, state)) return;
  if (before_mono_ns == 0) return;  // a second one is needed
  state.window.start_mono_ns = before_mono_ns;
  read_values(call, now_mono_ns, state);
}

bool GpuCounterReader::find_support(const Call& call, int64_t now_mono_ns, GpuCounterState& state) {
  if (knows_support_) return is_supported_;
  const auto decide = [&](bool is_supported, std::string reason) {
    knows_support_ = true;
    is_supported_ = is_supported;
    state.window = {};
    state.reason = std::move(reason);
    state.has_failed = false;
    return is_supported;
  };
  const bool has_functions = api_->gpm_support && api_->gpm_sample_alloc && api_->gpm_sample_free &&
                             api_->gpm_metrics &&
                             (gpu_instance_ ? bool(api_->gpm_mig_sample) : bool(api_->gpm_sample));
  constexpr const char* kNoGpm =
      "this version of NVIDIA's driver cannot read them (NVML without GPM)";
  if (!has_functions) return decide(false, kNoGpm);
  NvmlGpmSupport support;
  const NvmlReturn code = call(false, "nvmlGpmQueryDeviceSupport",
                               [&] { return api_->gpm_support(device_, &support); });
  if (code == kNvmlNotSupported || (code == kNvmlSuccess && support.is_supported_device == 0)) {
    return decide(false, "this GPU has none that NVML can read (GPM): Hopper and later have them");
  }
  if (code == kNvmlFunctionNotFound) return decide(false, kNoGpm);
  if (code == kNvmlSuccess) return decide(true, "");
  fail(now_mono_ns, "nvmlGpmQueryDeviceSupport: " + describe_nvml(*api_, code), state);
  return false;
}

bool GpuCounterReader::alloc_samples(const Call& call, int64_t now_mono_ns,
                                     GpuCounterState& state) {
  for (NvmlGpmSample& sample : samples_) {
    if (sample != nullptr) continue;
    const NvmlReturn code =
        call(false, "nvmlGpmSampleAlloc", [&] { return api_->gpm_sample_alloc(&sample); });
    if (code == kNvmlSuccess && sample != nullptr) continue;
    sample = nullptr;
    fail(now_mono_ns, "nvmlGpmSampleAlloc: " + describe_nvml(*api_, code), state);
    return false;
  }
  return true;
}

bool GpuCounterReader::take_sample(const Call& call, int64_t now_mono_ns, GpuCounterState& state) {
  const size_t older = 1 - newest_;
  const char* name = gpu_instance_ ? "nvmlGpmMigSampleGet" : "nvmlGpmSampleGet";
  const NvmlReturn code = call(sampled_mono_ns_ != 0, name, [&] {
    return gpu_instance_ ? api_->gpm_mig_sample(device_, *gpu_instance_, samples_[older])
                         : api_->gpm_sample(device_, samples_[older]);
  });
  ++state.samples;
  if (code != kNvmlSuccess) {
    ++state.failed_samples;
    fail(now_mono_ns, fmt::format("{}: {}", name, describe_nvml(*api_, code)), state);
    return false;
  }
  newest_ = older;
  sampled_mono_ns_ = now_mono_ns;
  return true;
}

void GpuCounterReader::read_values(const Call& call, int64_t now_mono_ns, GpuCounterState& state) {
  NvmlGpmMetricsGet request{
      .count = kGpuCounters, .sample1 = samples_[1 - newest_], .sample2 = samples_[newest_]};
  for (size_t i = 0; i < kGpuCounters; ++i)
    request.metrics[i].metric_id = kCounterMetrics[i].metric_id;
  const NvmlReturn code =
      call(true, "nvmlGpmMetricsGet", [&] { return api_->gpm_metrics(&request); });
  GpuCounterValues values;
  if (code == kNvmlSuccess) {
    for (size_t i = 0; i < kGpuCounters; ++i) {
      values[i] = convert(request.metrics[i], kCounterMetrics[i].counter);
    }
  }
  if (std::ranges::none_of(values, [](const auto& value) { return value.has_value(); })) {
    ++state.failed_samples;
    return fail(now_mono_ns,
                code == kNvmlSuccess ? "nvmlGpmMetricsGet has no values: a profiler may hold them"
                                     : "nvmlGpmMetricsGet: " + describe_nvml(*api_, code),
                state);
  }
  state.window.end_mono_ns = now_mono_ns;
  state.window.values = values;
  state.reason.clear();
  state.has_failed = false;
  retry_ = kFirstRetry;
}

void GpuCounterReader::fail(int64_t now_mono_ns, const std::string& what, GpuCounterState& state) {
  sampled_mono_ns_ = 0;
  state.window = {};
  state.reason = fmt::format("{}; tried again after {} s", what,
                             std::chrono::duration_cast<std::chrono::seconds>(retry_).count());
  state.has_failed = true;
  retry_mono_ns_ = now_mono_ns + retry_.count();
  retry_ = std::min(retry_ * 2, kMaxRetry);
}

void GpuCounterReader::free_samples(const Call& call) {
  for (NvmlGpmSample& sample : samples_) {
    if (sample == nullptr) continue;
    // Nothing could be done about an error.
    (void)call(false, "nvmlGpmSampleFree", [&] { return api_->gpm_sample_free(sample); });
    sample = nullptr;
  }
  sampled_mono_ns_ = 0;
}

}  // namespace gpuperf
