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
    {L::kSlurmJob, "slurm_job", "SLURM_JOB_ID of the process; empty outside Slurm jobs"},
    {L::kSlurmRank, "slurm_rank", "SLURM_PROCID of the process; empty outside Slurm jobs"},
    {L::kError, "error",
     "name of the code in its own library, the number where no name is known, `other` for codes "
     "beyond the six told apart per function and process"},
    {L::kDirection, "direction",
     "as `kind`; `plain` for bytes that have none: allocated, set, or sent"},
    {L::kKind, "kind",
     "`host_to_host`, `host_to_device`, `device_to_host`, `device_to_device`; `default` where the "
     "call leaves it to the driver"},
    {L::kState, "state",
     "`attached`, `entry_only`, `waiting`, `symbol_missing`, `failed`, `disabled`, `suspended` "
     "(by the overhead budget), `alias` (counted under another name)"},
    {L::kStage, "stage", "where it was dropped, see the list below"},
    {L::kReason, "reason", "why it was dropped, see the list below"},
    {L::kVersion, "version", "version of the daemon"},
    {L::kKernel, "kernel", "release of the kernel it runs on"},
    {L::kMechanism, "mechanism",
     "how probes are attached: `session`, `multi`, `perf`; `none` while they cannot be"},
};

constexpr L kOwner[] = {L::kCategory, L::kFunction,  L::kComm,     L::kContainer,
                        L::kPod,      L::kNamespace, L::kSlurmJob, L::kSlurmRank};
constexpr L kOwnerAndError[] = {L::kCategory,  L::kFunction, L::kComm,      L::kContainer, L::kPod,
                                L::kNamespace, L::kSlurmJob, L::kSlurmRank, L::kError};
constexpr L kOwnerAndDirection[] = {L::kCategory,  L::kFunction,  L::kComm,
                                    L::kContainer, L::kPod,       L::kNamespace,
                                    L::kSlurmJob,  L::kSlurmRank, L::kDirection};
constexpr L kFunctionOnly[] = {L::kCategory, L::kFunction};
constexpr L kKind[] = {L::kKind};
constexpr L kPodAndComm[] = {L::kPod, L::kComm};
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
    {.metric = Metric::kFunctionOldestInFlight,
     .name = "gpuperf_function_oldest_in_flight_seconds",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kSeconds,
     .labels = kOwner,
     .source = "stacks of probed calls of all threads, looked at every few seconds",
     .help = "Age of the oldest call that has begun and not ended; 0 = none was found."},
    {.metric = Metric::kFunctionBytes,
     .name = "gpuperf_function_bytes_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kBytes,
     .labels = kOwnerAndDirection,
     .source = "arguments of successful calls, added up in the kernel",
     .help = "Bytes copied, allocated, set or sent by successful calls. A series appears with its "
             "first byte."},
    {.metric = Metric::kFunctionFlops,
     .name = "gpuperf_function_flops_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kOperations,
     .labels = kOwner,
     .source = "dimensions of successful GEMMs, multiplied in the kernel",
     .help = "Floating-point operations of successful GEMMs: 2 m n k, times the batch. A series "
             "appears with its first GEMM."},
    {.metric = Metric::kFunctionCoverage,
     .name = "gpuperf_function_coverage_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kFunctionOnly,
     .source = "the overhead budget",
     .help =
         "Share of the time since attach that the function was probed. Only functions that were "
         "taken out for a while; all others have 1."},
    {.metric = Metric::kMemcpyBytes,
     .name = "gpuperf_memcpy_bytes_total",
     .type = MetricType::kCounter,
     .unit = MetricUnit::kBytes,
     .labels = kKind,
     .source = "gpuperf_function_bytes_total, all functions with a direction",
     .help = "Bytes of copies by direction, as the calls asked for them. A copy that one probed "
             "function makes by calling another is in both."},
    {.metric = Metric::kProbes,
     .name = "gpuperf_probes",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kProbes,
     .labels = kState,
     .source = "the daemon",
     .help = "Probes by state; one probe is one configured function in one file, or without a file "
             "while none was found."},
    {.metric = Metric::kSuspendedFunctions,
     .name = "gpuperf_suspended_functions",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kFunctions,
     .labels = {},
     .source = "the overhead budget",
     .help = "Functions taken out for a while because their probes cost too much."},
    {.metric = Metric::kOverhead,
     .name = "gpuperf_overhead_ratio",
     .type = MetricType::kGauge,
     .unit = MetricUnit::kRatio,
     .labels = kPodAndComm,
     .source = "hits of each probe times its cost, calibrated on this machine",
     .help =
         "Share of a process's time that probes took over the last interval: the highest of the "
         "running processes with these labels."},
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
    if (row.name.ends_with("_ratio") != (row.unit == MetricUnit::kRatio)) return false;
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
    case MetricUnit::kOperations:
      return "floating-point operations";
    case MetricUnit::kRatio:
      return "ratio, 0 to 1";
    case MetricUnit::kFunctions:
      return "functions";
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
namespace, Slurm job and rank) exported on their own. Sets are admitted in order of appearance, and
one once exported stays. What comes later is added to the set of the same function with
`comm="other"` and the other owner labels empty; each folded set counts once in
`gpuperf_dropped_total{stage="metrics",reason="series_full"}`. One set is 32 Prometheus series, plus
one per error code, per direction of bytes, and for operations. The sets (pod, comm) of
`gpuperf_overhead_ratio` count among them.

Calls per second, the 99th percentile, the share of calls that are slow, and bytes per second to and
from the device, per function:

```promql
sum by (function) (rate(gpuperf_function_calls_total[5m]))
histogram_quantile(0.99, sum by (function, le) (rate(gpuperf_function_duration_seconds_bucket[5m])))
sum by (function) (rate(gpuperf_function_slow_calls_total[5m]))
  / sum by (function) (rate(gpuperf_function_calls_total[5m]))
sum by (function, direction) (rate(gpuperf_function_bytes_total[5m]))
```

`gpuperf_memcpy_bytes_total` counts what calls asked for, on the host; what the device copied, also
within graphs and kernels, probes do not see.

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
