#include "daemon/export/gpu_health_metrics.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/model/gpu_counter_metrics.h"

namespace gpuperf {
namespace {

// The series of one GPU.
class GpuSeries {
 public:
  GpuSeries(const GpuHealth& gpu, MetricFamilies& families)
      : labels_{std::to_string(gpu.index), to_valid_utf8(gpu.uuid_text)}, families_(families) {}

  std::vector<std::string> make_labels(std::initializer_list<std::string_view> more) const {
    std::vector<std::string> labels = labels_;
    for (const std::string_view value : more) labels.emplace_back(value);
    return labels;
  }

  // `units`: of the value in one of the metric.
  template <typename Value>
  void add_gauge(Metric metric, const std::optional<Value>& value, double units = 1,
                 std::initializer_list<std::string_view> more = {}) const {
    if (!value) return;
    families_.add_gauge(metric, make_labels(more), static_cast<double>(*value) / units);
  }
  template <typename Value>
  void add_counter(Metric metric, const std::optional<Value>& value, double units = 1,
                   std::initializer_list<std::string_view> more = {}) const {
    if (!value) return;
    families_.add_counter(metric, make_labels(more), static_cast<double>(*value) / units);
  }

 private:
  const std::vector<std::string> labels_;
  MetricFamilies& families_;
};

void add_values(const GpuHealth& gpu, const GpuSeries& series) {
  series.add_gauge(Metric::kGpuUtilization, gpu.utilization_ratio);
  series.add_gauge(Metric::kGpuMemoryUtilization, gpu.memory_utilization_ratio);
  series.add_gauge(Metric::kGpuMemoryUsed, gpu.memory_used_bytes);
  series.add_gauge(Metric::kGpuMemoryTotal, gpu.memory_total_bytes);
  series.add_gauge(Metric::kGpuPower, gpu.power_mw, 1e3);
  series.add_gauge(Metric::kGpuPowerLimit, gpu.power_limit_mw, 1e3);
  series.add_counter(Metric::kGpuEnergy, gpu.energy_mj, 1e3);
  series.add_gauge(Metric::kGpuClock, gpu.sm_clock_hz, 1, {"sm"});
  series.add_gauge(Metric::kGpuClock, gpu.memory_clock_hz, 1, {"memory"});
  series.add_gauge(Metric::kGpuClockMax, gpu.sm_clock_max_hz, 1, {"sm"});
  series.add_gauge(Metric::kGpuClockMax, gpu.memory_clock_max_hz, 1, {"memory"});
  series.add_gauge(Metric::kGpuTemperature, gpu.temperature_celsius);
  series.add_counter(Metric::kGpuPcieReplays, gpu.pcie.replays);
  for (const ClockLimitRow& row : clock_limit_rows()) {
    const ClockLimitState& state = gpu.clock_limits[static_cast<size_t>(row.limit)];
    series.add_counter(Metric::kGpuThrottle, state.total_ns, 1e9, {row.label});
    if (gpu.has_clock_limits) {
      series.add_gauge(Metric::kGpuThrottled, std::optional(state.is_active ? 1 : 0), 1,
                       {row.label});
    }
  }
}

// `gpu_instance`: empty = the whole GPU.
void add_counters(const GpuCounterState& state, std::string_view gpu_instance,
                  const GpuSeries& series) {
  if (state.samples == 0) return;
  series.add_counter(Metric::kGpuCounterSamples, std::optional(state.samples), 1, {gpu_instance});
  series.add_counter(Metric::kGpuCounterFailures, std::optional(state.failed_samples), 1,
                     {gpu_instance});
  for (const GpuCounterMetricRow& row : gpu_counter_metric_rows()) {
    const bool is_ratio = gpu_counter_rows()[static_cast<size_t>(row.counter)].is_ratio;
    const auto& value = state.window.values[static_cast<size_t>(row.counter)];
    const double units = is_ratio ? kRatioMillion : 1;
    if (row.label.empty()) {
      series.add_gauge(row.metric, value, units, {gpu_instance});
    } else {
      series.add_gauge(row.metric, value, units, {gpu_instance, row.label});
    }
  }
}

void add_errors(const GpuHealth& gpu, const GpuSeries& series) {
  for (const auto& [code, count] : gpu.xids) {
    series.add_counter(Metric::kGpuXids, std::optional(count.count), 1, {std::to_string(code)});
  }
  series.add_counter(Metric::kGpuEcc, gpu.ecc.corrected_volatile, 1, {"corrected"});
  series.add_counter(Metric::kGpuEcc, gpu.ecc.uncorrected_volatile, 1, {"uncorrected"});
  series.add_counter(Metric::kGpuRemappedRows, gpu.repair.remapped_corrected, 1, {"corrected"});
  series.add_counter(Metric::kGpuRemappedRows, gpu.repair.remapped_uncorrected, 1, {"uncorrected"});
}

}  // namespace

void add_gpu_health_metrics(const GpuHealthReport& report, MetricFamilies& families) {
  for (const GpuHealth& gpu : report.gpus) {
    const GpuSeries series(gpu, families);
    families.add_gauge(
        Metric::kGpuInfo,
        series.make_labels({to_valid_utf8(gpu.name), to_valid_utf8(report.driver_version),
                            to_valid_utf8(gpu.pci_bus_id)}),
        1);
    families.add_gauge(Metric::kGpuUp, series.make_labels({}), gpu.is_lost ? 0 : 1);
    if (!gpu.is_lost) {
      add_values(gpu, series);
      add_counters(gpu.counters, "", series);
      for (const auto& [instance, state] : gpu.instance_counters) {
        add_counters(state, std::to_string(instance), series);
      }
    }
    add_errors(gpu, series);
  }
}

}  // namespace gpuperf
