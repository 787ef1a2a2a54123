#include "daemon/model/gpu_counter_metrics.h"

#include <spdlog/fmt/fmt.h>

#include <iterator>
#include <string>

namespace gpuperf {
namespace {

constexpr GpuCounterMetricRow kCounterMetricRows[] = {
    {GpuCounter::kGraphicsEngine, Metric::kGpuGraphicsEngineActive, ""},
    {GpuCounter::kSm, Metric::kGpuSmActive, ""},
    {GpuCounter::kSmOccupancy, Metric::kGpuSmOccupancy, ""},
    {GpuCounter::kTensor, Metric::kGpuPipeActive, "tensor"},
    {GpuCounter::kFp64, Metric::kGpuPipeActive, "fp64"},
    {GpuCounter::kFp32, Metric::kGpuPipeActive, "fp32"},
    {GpuCounter::kFp16, Metric::kGpuPipeActive, "fp16"},
    {GpuCounter::kInteger, Metric::kGpuPipeActive, "integer"},
    {GpuCounter::kDram, Metric::kGpuDramActive, ""},
    {GpuCounter::kPcieTransmit, Metric::kGpuPcieRate, "transmit"},
    {GpuCounter::kPcieReceive, Metric::kGpuPcieRate, "receive"},
    {GpuCounter::kNvlinkTransmit, Metric::kGpuNvlinkRate, "transmit"},
    {GpuCounter::kNvlinkReceive, Metric::kGpuNvlinkRate, "receive"},
};
static_assert(std::size(kCounterMetricRows) == kGpuCounters);

}  // namespace

std::span<const GpuCounterMetricRow> gpu_counter_metric_rows() { return kCounterMetricRows; }

std::string render_dcgm_markdown() {
  std::string text =
      "## Names in DCGM exporter\n\nHardware counters have the meaning and the unit of DCGM "
      "exporter's fields (ratios of 0 to 1, bytes per\nsecond), so a dashboard moves by replacing "
      "names. DCGM's label `gpu` is `gpu` here, `UUID` is `uuid`, `GPU_I_ID`\nis `gpu_instance`."
      "\n\n| DCGM | here |\n|---|---|\n";
  for (const GpuCounterMetricRow& row : kCounterMetricRows) {
    const MetricRow& metric = get_metric(row.metric);
    const std::string selector =
        row.label.empty()
            ? ""
            : fmt::format("{{{}=\"{}\"}}", get_label_name(metric.labels.back()), row.label);
    text += fmt::format("| `DCGM_FI_PROF_{}` | `{}{}` |\n",
                        gpu_counter_rows()[static_cast<size_t>(row.counter)].dcgm, metric.name,
                        selector);
  }
  return text;
}

}  // namespace gpuperf
