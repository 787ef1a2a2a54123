#include "daemon/model/metric_catalog.h"

#include <spdlog/fmt/fmt.h>

#include <iterator>

#include "daemon/model/drops.h"

namespace gpuperf {
namespace {

using L = MetricLabel;

constexpr MetricLabelRow kLabelRows[] = {
    {L::kCategory, "category", "section of the configuration without `_func_sym` or `_sym`"},
    {L::kFunction, "function", "display name from the configuration"},
    {L::kComm, "comm",
     "command of the process; `other` for what was folded because a bound was full"},
    {L::kContainer, "container", "container id, 12 characters; empty outside containers"},
    {L::kPod, "pod", "pod name, or its uid where the name is not known; empty outside pods"},
    {L::kNamespace, "namespace", "Kubernetes namespace; empty outside pods or where not known"},
    {L::kError, "error",
     "name of the code in its own library, the number where no name is known, `other` for codes "
     "beyond the six told apart per function and process"},
    {L::kState, "state",
     "`attached`, `entry_only`, `waiting`, `symbol_missing`, `failed`, `disabled`"},
    {L::kStage, "stage", "where it was dropped, see the list below"},
    {L::kReason, "reason", "why it was dropped, see the list below"},
    {L::kVersion, "version", "version of the daemon"},
    {L::kKernel, "kernel", "release of the kernel it runs on"},
    {L::kMechanism, "mechanism",
     "how probes are attached: `session`, `multi`, `perf`; `none` while they cannot be"},
};

constexpr L kOwner[] = {L::kCategory,  L::kFunction, L::kComm,
                        L::kContainer, L::kPod,      L::kNamespace};
constexpr L kOwnerAndError[] = {L::kCategory, L::kFunction,  L::kComm, L::kContainer,
                                L::kPod,      L::kNamespace, L::kError};
constexpr L kState[] = {L::kState};
constexpr L kStageAndReason[] = {L::kStage, L::kReason};
constexpr L kBuild[] = {L::kVersion, L::kKernel, L::kMechanism};

constexpr MetricRow kMetricRows[] = {
    {.metric = Metric::kFunctionCalls,
     .name = "gpuperf_function_calls_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "entry probe, counted in the kernel",
     .help = "Calls begun. Exact."},
    {.metric = Metric::kFunctionErrors,
     .name = "gpuperf_function_errors_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwnerAndError,
     .source = "return probe, return value of functions whose library defines a status",
     .help = "Calls that returned an error, by code. Codes that only mean not ready are no errors. "
             "A series appears with its first error."},
    {.metric = Metric::kFunctionSlowCalls,
     .name = "gpuperf_function_slow_calls_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "return probe, compared in the kernel",
     .help = "Completed calls at least as long as the threshold of their function."},
    {.metric = Metric::kFunctionDuration,
     .name = "gpuperf_function_duration_seconds",
     .type = MetricType::kHistogram,
     .unit = MetricUnit::kSeconds,
     .labels = kOwner,
     .source = "time from entry to return probe, aggregated in the kernel",
     .help = "Inclusive duration of completed calls. Absent for functions probed at entry only."},
    {.metric = Metric::kFunctionAbandoned,
     .name = "gpuperf_function_abandoned_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "thread state in the kernel and process exits",
     .help = "Calls that will never return: longjmp, exception, thread or process exit."},
    {.metric = Metric::kFunctionInFlight,
     .name = "gpuperf_function_in_flight_calls",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kCalls,
     .labels = kOwner,
     .source = "calls begun less completed, abandoned and untimed",
     .help = "Calls that have begun and not ended yet. A value that stays up is a hung call."},
    {.metric = Metric::kProbes,
     .name = "gpuperf_probes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kProbes,
     .labels = kState,
     .source = "the daemon",
     .help = "Probes by state; one probe is one configured function in one file, or without a file "
             "while none was found."},
    {.metric = Metric::kProcesses,
     .name = "gpuperf_processes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kProcesses,
     .labels = {},
     .source = "the daemon",
     .help = "Running processes that called a probed function."},
    {.metric = Metric::kDropped,
     .name = "gpuperf_dropped_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kDrops,
     .labels = kStageAndReason,
     .source = "every bound of the daemon and its BPF programs",
     .help = "What was dropped because a bound was full or input was bad. Every cause is always "
             "present."},
    {.metric = Metric::kBuildInfo,
     .name = "gpuperf_build_info",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kInfo,
     .labels = kBuild,
     .source = "the daemon",
     .help = "Always 1; the labels say what runs."},
    {.metric = Metric::kDaemonCpu,
     .name = "gpuperf_daemon_cpu_seconds_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kSeconds,
     .labels = {},
     .source = "the daemon's own resource usage, user and kernel",
     .help = "CPU time used by the daemon. The time probes take inside workloads is not in it."},
    {.metric = Metric::kDaemonResident,
     .name = "gpuperf_daemon_resident_bytes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kBytes,
     .labels = {},
     .source = "/proc/self/statm",
     .help = "Resident memory of the daemon."},
};

// A row out of order would give a metric another one's name; a bad name would only be seen by a
// linter. Both stop the build instead.
consteval bool rows_are_sound() {
  for (size_t i = 0; i < std::size(kMetricRows); ++i) {
    const MetricRow& row = kMetricRows[i];
    if (row.metric != static_cast<Metric>(i) || !row.name.starts_with("gpuperf_")) return false;
    if (row.name.ends_with("_total") != (row.type == MetricType::kCounter)) return false;
    const bool seconds = row.name.find("_seconds") != std::string_view::npos;
    const bool bytes = row.name.find("_bytes") != std::string_view::npos;
    if (seconds != (row.unit == MetricUnit::kSeconds)) return false;
    if (bytes != (row.unit == MetricUnit::kBytes)) return false;
  }
  for (size_t i = 0; i < std::size(kLabelRows); ++i) {
    if (kLabelRows[i].label != static_cast<MetricLabel>(i)) return false;
  }
  return true;
}
static_assert(std::size(kMetricRows) == static_cast<size_t>(Metric::kCount));
static_assert(std::size(kLabelRows) == static_cast<size_t>(MetricLabel::kCount));
static_assert(rows_are_sound());

std::string_view get_type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";  // only reached with a value outside the enum
}

std::string_view get_unit_name(MetricUnit unit) {
  switch (unit) {
    case MetricUnit::kCalls:
      return "calls";
    case MetricUnit::kSeconds:
      return "seconds";
    case MetricUnit::kBytes:
      return "bytes";
    case MetricUnit::kProbes:
      return "probes";
    case MetricUnit::kProcesses:
      return "processes";
    case MetricUnit::kDrops:
      return "drops";
    case MetricUnit::kInfo:
      return "none";
  }
  return "";  // only reached with a value outside the enum
}

std::string join_labels(std::span<const MetricLabel> labels) {
  std::string joined;
  for (const MetricLabel label : labels) {
    joined += fmt::format("{}`{}`", joined.empty() ? "" : ", ", get_label_name(label));
  }
  return joined.empty() ? "none" : joined;
}

std::string join_edges() {
  std::string joined;
  for (const uint64_t edge_ns : kDurationEdgesNs) {
    joined += fmt::format("{}{}", joined.empty() ? "" : ", ", static_cast<double>(edge_ns) / 1e9);
  }
  return joined;
}

constexpr std::string_view kIntroduction = R"(# Metrics

Generated from `daemon/model/metric_catalog.cpp`; do not edit. To regenerate, run the test
`export_test` with `GPUPERF_UPDATE_GOLDEN=1`.

The daemon serves these at `metrics.listen` (default `127.0.0.1:9465`), path `/metrics`, in the
Prometheus text format. Counters never decrease while the daemon runs; a restart begins at zero.

Series are bounded by `metrics.max_series`: the number of sets (function, comm, container, pod,
namespace) exported on their own. Sets are admitted in order of appearance, and one once exported
stays. What comes later is added to the set of the same function with `comm="other"` and the other
owner labels empty; each folded set counts once in
`gpuperf_dropped_total{stage="metrics",reason="series_full"}`. One set is 31 Prometheus
series, plus one per error code.

Calls per second, the 99th percentile, and the share of calls that are slow, per function:

```promql
sum by (function) (rate(gpuperf_function_calls_total[5m]))
histogram_quantile(0.99, sum by (function, le) (rate(gpuperf_function_duration_seconds_bucket[5m])))
sum by (function) (rate(gpuperf_function_slow_calls_total[5m]))
  / sum by (function) (rate(gpuperf_function_calls_total[5m]))
```

)";

}  // namespace

std::span<const MetricRow> metric_rows() { return kMetricRows; }
std::span<const MetricLabelRow> metric_label_rows() { return kLabelRows; }
const MetricRow& get_metric(Metric metric) { return kMetricRows[static_cast<size_t>(metric)]; }
std::string_view get_label_name(MetricLabel label) {
  return kLabelRows[static_cast<size_t>(label)].name;
}

std::string render_metrics_markdown() {
  std::string text(kIntroduction);
  text += "## Metrics\n\n";
  for (const MetricRow& row : kMetricRows) {
    text += fmt::format("### `{}`\n\n{}\n\n- Type: {}; unit: {}\n- Labels: {}\n- Source: {}\n\n",
                        row.name, row.help, get_type_name(row.type), get_unit_name(row.unit),
                        join_labels(row.labels), row.source);
  }
  text += fmt::format(
      "## Edges of the histogram\n\nSeconds, each exactly an edge of the histogram the kernel "
      "keeps, "
      "so the counts are exact: {}.\n\n",
      join_edges());
  text += "## Labels\n\n| label | meaning |\n|---|---|\n";
  for (const MetricLabelRow& row : kLabelRows) {
    text += fmt::format("| `{}` | {} |\n", row.name, row.meaning);
  }
  text +=
      fmt::format("\n## Causes of `{}`\n\n| stage | reason | what was dropped |\n|---|---|---|\n",
                  get_metric(Metric::kDropped).name);
  for (const DropRow& row : drop_rows()) {
    text += fmt::format("| `{}` | `{}` | {} |\n", row.stage, row.reason, row.meaning);
  }
  return text;
}

}  // namespace gpuperf
