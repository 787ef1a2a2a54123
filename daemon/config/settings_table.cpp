#include "daemon/config/settings_table.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "daemon/config/address_format.h"
#include "daemon/config/error_text.h"
#include "daemon/config/qos_rule.h"

namespace gpuperf {
namespace {

constexpr std::string_view kSections[] = {"slow",     "stats",    "ingest", "sessions", "trace",
                                          "requests", "overhead", "qos",    "limits",   "storage",
                                          "metrics",  "grpc",     "export", "log"};

constexpr std::string_view kLogLevels[] = {"trace", "debug", "info", "warn", "error"};

constexpr uint64_t kDaySeconds = 86'400;

// Upper ends keep what one setting can make the daemon hold below about 1 GB: a cell takes 2.4 KB
// and each function one more of them, a slow call about 1 KB, a series and a row of a process 4.7
// KB (the histogram), an exited process about 20 such rows.
constexpr SettingRow kRows[] = {
    {"slow", "default_threshold_ms",
     "Default threshold: a call that takes at least this long is slow. A probe can set its own. 0: "
     "only probes with their own threshold have slow calls.",
     Effect::kReload,
     NumberSetting{[](Settings& s) -> double& { return s.slow.default_threshold_ms; }, 0,
                   kThresholdMaxMs}},
    {"slow", "worst_per_function",
     "Number of worst slow calls kept in memory per function and process.", Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.slow.worst_per_function; }, 0, 100}},
    {"slow", "recent", "Number of most recent slow calls kept in memory in addition to the worst.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.slow.recent; }, 0, 100'000}},
    {"slow", "log_per_second",
     "Maximum number of slow calls logged per second; the rest are counted. 0: none.",
     Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.slow.log_per_second; }, 0, 1000}},
    {"slow", "stacks", "Whether slow calls include their user stack.", Effect::kReload,
     SwitchSetting{[](Settings& s) -> bool& { return s.slow.stacks; }}},
    {"slow", "time_split",
     "Whether threads are traced through the scheduler while they are in a probed call, so that a "
     "slow call shows its time split.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.slow.time_split; }}},
    {"slow", "adaptive_factor",
     "Adaptive threshold: a call is also slow if it takes this many times its function's p99 over "
     "the last minute. 0: only thresholds in milliseconds apply.",
     Effect::kReload,
     NumberSetting{[](Settings& s) -> double& { return s.slow.adaptive_factor; }, 0, 1'000'000}},
    {"slow", "adaptive_floor_ms",
     "Lower bound of the adaptive threshold, so that fast functions do not produce noise.",
     Effect::kReload,
     NumberSetting{[](Settings& s) -> double& { return s.slow.adaptive_floor_ms; }, 0.001,
                   kThresholdMaxMs}},
    {"stats", "interval_ms", "Interval at which totals are read from the BPF maps.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.stats.interval_ms; }, 100, 60'000}},
    {"stats", "max_cells",
     "Maximum number of (function, process) pairs tracked at the same time; calls of further pairs "
     "are counted under process \"other\".",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.stats.max_cells; }, 1, 262'144}},
    {"stats", "max_functions",
     "Maximum number of functions, including wildcard matches and functions added at run time; "
     "further ones are not probed and counted as drops.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.stats.max_functions; }, 16, 16'384}},
    {"stats", "keep_exited_seconds",
     "How long the rows of an exited process stay visible. Its calls stay in the totals.",
     Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.stats.keep_exited_seconds; }, 0,
                    7 * kDaySeconds}},
    {"stats", "max_exited_processes",
     "Maximum number of exited processes whose rows are kept; the oldest are removed first.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.stats.max_exited_processes; }, 0,
                    10'000}},
    {"stats", "summary_interval_seconds", "Interval of the summary in the log. 0: no summary.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.stats.summary_interval_seconds; }, 0,
                    kDaySeconds}},
    {"stats", "gpu_interval_ms",
     "Interval at which clocks, power, temperature and errors of the GPUs are read from NVIDIA's "
     "driver; values below 100 mean 100. 0: never.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.stats.gpu_interval_ms; }, 0, 60'000}},
    {"stats", "gpu_counters",
     "Whether hardware counters of GPUs (tensor pipe, SM occupancy, memory bandwidth and "
     "others) are read, through NVML's GPM: once a second, or each stats.gpu_interval_ms where "
     "that is longer. Hopper and later have them.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.stats.gpu_counters; }}},
    {"ingest", "enabled", "Whether injected processes may connect and report what their GPU does.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.ingest.enabled; }}},
    {"ingest", "socket",
     "Absolute path of the Unix socket that injected processes connect to. Empty: ingest.sock in "
     "the runtime directory. If you change it, set GPUPERF_SOCKET to the same path in the "
     "processes.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.ingest.socket; }, kSocketPathFormat,
                 kSocketPathPattern, find_socket_path_fault}},
    {"ingest", "max_sessions",
     "Maximum number of injected processes connected at the same time; further ones are refused "
     "and counted.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.ingest.max_sessions; }, 1, 8'192}},
    {"ingest", "max_sessions_per_user",
     "Maximum number of them per user. An eighth of the total is reserved for root, and no other "
     "user gets more than three times what is free, so that others can still connect.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.ingest.max_sessions_per_user; }, 1,
                    8'192}},
    {"ingest", "max_records_per_second",
     "Maximum rate per process. Above it, the daemon reads from the process later, and the process "
     "drops and counts what it cannot send.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.ingest.max_records_per_second; }, 1'000,
                    100'000'000}},
    {"ingest", "sample_every", "Keep one of every so many launches. 1: all.", Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.ingest.sample_every; }, 1, 1'000'000}},
    {"ingest", "hooked_calls",
     "Record the calls of injected processes by launch hooks instead of CUPTI. Launches cost less, "
     "and "
     "a paused session leaves no cost behind. Launches that threads make on one stream at the same "
     "time are left without their call. Needs overhead.launch_hooks.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.ingest.hooked_calls; }}},
    {"ingest", "allocations",
     "Record each allocation of device memory in injected processes, for "
     "gpuperf_gpu_allocated_bytes and the memory in gpuperfctl sessions. CUPTI then stays attached "
     "for the life of the process, which costs each launch 0.5 us, also while nothing is recorded.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.ingest.allocations; }}},
    {"ingest", "flush_interval_ms",
     "Maximum time that a record waits in its process before it is sent.", Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.ingest.flush_interval_ms; }, 10,
                    60'000}},
    {"ingest", "injector_path",
     "Host path of libgpuperf_injector.so for containers injected by one of the ways below; "
     "container runtimes read it from there. If gpuperfd runs in a container, mount the library's "
     "folder at the same path. Empty: gpuperfd looks next to itself and in the install location.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.ingest.injector_path; }, kFileFormat,
                 kFilePattern, find_file_fault}},
    {"ingest", "cdi_spec",
     "CDI file that declares the device gpuperf.dev/inject=all to podman, Docker and containerd; a "
     "container with this device is injected. Usually /var/run/cdi/gpuperf.json. It remains when "
     "gpuperfd stops. Empty: no file is written.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.ingest.cdi_spec; }, kCdiSpecFormat,
                 kCdiSpecPattern, find_cdi_spec_fault}},
    {"ingest", "device_plugin",
     "Whether gpuperfd registers a device plugin with the node's kubelet. It offers the resource "
     "gpuperf.dev/inject; pods that request it are injected.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.ingest.device_plugin; }}},
    {"ingest", "device_plugin_dir",
     "Folder that contains the kubelet's kubelet.sock. Empty: /var/lib/kubelet/device-plugins.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.ingest.device_plugin_dir; },
                 kFolderFormat, kFolderPattern, find_folder_fault}},
    {"sessions", "attach",
     "Whether root may attach to processes that run already: gpuperfctl attach brings the injected "
     "library into them. Nothing is ever attached to without being asked for. Off: refused, and "
     "gpuperfd gives up the rights it takes.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.sessions.attach; }}},
    {"trace", "recorder",
     "Whether the flight recorder is on: it always keeps the last seconds of launches, calls and "
     "GPU work in memory. Off: only captures record.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.trace.recorder; }}},
    {"trace", "recorder_seconds",
     "How far back the flight recorder reaches, unless trace.recorder_mib is full.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.recorder_seconds; }, 1, 3'600}},
    {"trace", "recorder_mib",
     "Memory limit of the flight recorder in MiB; an event takes 32 bytes, and the oldest are "
     "removed first.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.recorder_mib; }, 1, 16'384}},
    {"trace", "stacks_per_second",
     "Launches per second and thread that get a stack while no capture runs; in a capture, all do. "
     "0: none.",
     Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.stacks_per_second; }, 0,
                    1'000'000}},
    {"trace", "min_call_us",
     "The flight recorder keeps all launches, and other calls that take at least this many "
     "microseconds. Captures have every call.",
     Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.min_call_us; }, 0, 10'000'000}},
    {"trace", "long_call_us",
     "Calls that take at least this many microseconds get their caller's stack.", Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.long_call_us; }, 1, 10'000'000}},
    {"trace", "max_capture_seconds", "Maximum duration of a capture; a longer one is stopped.",
     Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.max_capture_seconds; }, 1,
                    kDaySeconds}},
    {"trace", "max_capture_mib",
     "Memory limit in MiB for the events of running captures; events beyond it are dropped and "
     "counted.",
     Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.max_capture_mib; }, 1, 65'536}},
    {"trace", "freeze_on_slow_ms",
     "A slow call that takes at least this long freezes the flight recorder into a capture, at "
     "most once a minute. 0: never.",
     Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.freeze_on_slow_ms; }, 0,
                    3'600'000}},
    {"trace", "freeze_on_alert",
     "Whether POST /freeze?name=NAME on metrics.listen freezes the flight recorder into a capture, "
     "at most once a minute; meant for an Alertmanager webhook. Anyone who can reach this port can "
     "trigger it.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.trace.freeze_on_alert; }}},
    {"trace", "store_mib",
     "Disk limit in MiB for captures in storage.path; the oldest are removed first. Without "
     "storage.path, no capture is kept.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.store_mib; }, 1, 1'048'576}},
    {"trace", "retention_days", "How long a capture is kept.", Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.trace.retention_days; }, 1, 3'650}},
    {"requests", "enabled",
     "Whether processes that make steps, and the others of their sessions, are watched as they "
     "serve HTTP/1: when requests are read and each part of their answers is written. What is read "
     "and written is not kept.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.requests.enabled; }}},
    {"overhead", "budget_percent",
     "Overhead budget: the share of a process's time that probes, launch hooks and CUPTI together "
     "may take. Above it, the most expensive probes are attached for 50 ms at a time only, and the "
     "other calls are estimated. CUPTI may take half of it: a process that it would cost more, "
     "because it waits for its launches and not for the GPU, is recorded from its third minute on "
     "for half a second at a time, 5 s apart at first and 60 s to 10 min later, and during "
     "captures; in between CUPTI is ended (needs ingest.hooked_calls). 0: no limit.",
     Effect::kReload,
     NumberSetting{[](Settings& s) -> double& { return s.overhead.budget.percent; }, 0, 100}},
    {"overhead", "budget_percent_by_comm",
     "Budgets of processes by command name (a pattern, where * matches any run of characters), "
     "such as {\"vllm*\": 0.2} for those that are latency-critical. Of several that match, the "
     "first in alphabetical order counts. Probes act on files: what is suspended for one process "
     "is suspended for all that call it.",
     Effect::kReload,
     NumberMapSetting{[](Settings& s) -> std::map<std::string, double>& {
                        return s.overhead.budget.percent_by_comm;
                      },
                      0, 100}},
    {"overhead", "launch_hooks",
     "Whether injected processes count kernel and graph launches, copies and memsets themselves "
     "(launch hooks), without a trap per call. Off: uprobes count them, as in all other processes.",
     Effect::kReload, SwitchSetting{[](Settings& s) -> bool& { return s.overhead.launch_hooks; }}},
    {"qos", "rules",
     "Limits on gpuperf's own metrics or other programs', at most 32, and what to do while one is "
     "exceeded: freeze, detail, stand-down, check (see above).",
     Effect::kReload,
     MapSetting{[](Settings& s) -> std::map<std::string, std::string>& { return s.qos.rules; },
                kQosRulesFormat, kQosRuleNamePattern, find_qos_rule_fault}},
    {"qos", "file",
     "File in which other programs demand more or less observation: its first word is detail or "
     "stand-down, the rest is the reason. The demand ends when the file is removed or empty. "
     "Empty: none.",
     Effect::kReload,
     TextSetting{[](Settings& s) -> std::string& { return s.qos.file; }, kFileFormat, kFilePattern,
                 find_file_fault}},
    {"qos", "detail_percent",
     "What detail raises the budgets of processes to, for rules and the file. 0: no limit.",
     Effect::kReload,
     NumberSetting{[](Settings& s) -> double& { return s.qos.detail_percent; }, 0, 100}},
    {"qos", "release_seconds",
     "How long a metric must be back within its limit, by a tenth of it, before the rule is "
     "released. Twice as long each time it is exceeded again within that time, up to 32 times.",
     Effect::kReload,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.qos.release_seconds; }, 1, 3'600}},
    {"limits", "memory_mib",
     "Limit in MiB for the daemon's resident memory. A quarter of it is for data of injected "
     "processes, shared among users and processes; near the limit, no more of their data is kept. "
     "What is refused is counted.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.limits.memory_mib; }, 128, 65'536}},
    {"storage", "path",
     "Folder of the store of slow calls and captures, an absolute path. Empty: slow calls are kept "
     "in memory only.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.storage.path; }, kFolderFormat,
                 kFolderPattern, find_folder_fault}},
    {"storage", "max_mib",
     "Disk limit in MiB for slow calls; of the oldest calls, the least slow are removed first.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.storage.max_mib; }, 16, 1'048'576}},
    {"storage", "history_hours", "How long all slow calls are kept in the store.", Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.storage.history_hours; }, 1, 8'760}},
    {"storage", "retention_days",
     "How long the worst slow calls of each function, process and hour are kept in the store.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.storage.retention_days; }, 1, 3'650}},
    {"metrics", "listen",
     "Address on which Prometheus metrics are served over HTTP: host:port or [IPv6]:port; port 0 "
     "picks a free one. Empty: not served.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.metrics.listen; }, kTcpAddressFormat,
                 kTcpAddressPattern, find_tcp_address_fault}},
    {"metrics", "max_series",
     "Maximum number of (function, comm, container, pod) sets exported, at 31 time series each; "
     "further ones are added to comm=\"other\" and counted.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.metrics.max_series; }, 100, 200'000}},
    {"metrics", "max_kernels",
     "Maximum number of GPU kernel names exported separately; further ones are added to "
     "kernel_name=\"other\" and counted.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.metrics.max_kernels; }, 2, 10'000}},
    {"metrics", "page",
     "Whether metrics.listen also serves the web page, to browsers on this host that have its "
     "token.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.metrics.page; }}},
    {"grpc", "listen",
     "Address of the gRPC API: unix:/absolute/path, host:port or [IPv6]:port. TCP needs the three "
     "files below. Empty: not served, so gpuperfctl cannot reach the daemon.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.grpc.listen; }, kRpcAddressFormat,
                 kRpcAddressPattern, find_rpc_address_fault}},
    {"grpc", "cert_file", "The daemon's certificate for TCP clients (PEM).", Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.grpc.cert_file; }, kFileFormat,
                 kFilePattern, find_file_fault}},
    {"grpc", "key_file", "The daemon's private key (PEM).", Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.grpc.key_file; }, kFileFormat,
                 kFilePattern, find_file_fault}},
    {"grpc", "client_ca_file",
     "CA certificates that TCP clients' certificates are checked against (PEM). Anyone with such a "
     "certificate can read what the API shows.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.grpc.client_ca_file; }, kFileFormat,
                 kFilePattern, find_file_fault}},
    {"export", "otlp.endpoint",
     "OTLP/gRPC receiver for metrics, slow calls and profiles; https means TLS. Empty: the "
     "environment variable OTEL_EXPORTER_OTLP_ENDPOINT; if that is not set either, nothing is "
     "sent.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.otlp.endpoint; }, kEndpointFormat,
                 kEndpointPattern, find_endpoint_fault}},
    {"export", "otlp.ca_file",
     "CA certificates that the receiver's certificate is checked against (PEM). Empty: the "
     "system's.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.otlp.ca_file; }, kFileFormat,
                 kFilePattern, find_file_fault}},
    {"export", "otlp.cert_file",
     "Client certificate for the receiver (PEM); needs otlp.key_file. Empty: none.",
     Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.otlp.cert_file; }, kFileFormat,
                 kFilePattern, find_file_fault}},
    {"export", "otlp.key_file", "Private key of the client certificate (PEM).", Effect::kRestart,
     TextSetting{[](Settings& s) -> std::string& { return s.otlp.key_file; }, kFileFormat,
                 kFilePattern, find_file_fault}},
    {"export", "otlp.headers",
     "Headers sent with every request, in addition to OTEL_EXPORTER_OTLP_HEADERS. Put secrets "
     "there, not here: anyone who may use the API can read the configuration.",
     Effect::kRestart,
     MapSetting{[](Settings& s) -> std::map<std::string, std::string>& { return s.otlp.headers; },
                kHeadersFormat, kHeaderNamePattern, find_header_fault}},
    {"export", "otlp.resource_attributes",
     "Resource attributes in addition to host and service, such as cluster or region, and to "
     "OTEL_RESOURCE_ATTRIBUTES.",
     Effect::kRestart,
     MapSetting{[](Settings& s) -> std::map<std::string, std::string>& {
                  return s.otlp.resource_attributes;
                },
                kAttributesFormat, kAttributeNamePattern, find_attribute_fault}},
    {"export", "otlp.metrics",
     "Whether metrics are sent, the same ones that metrics.listen serves.", Effect::kRestart,
     SwitchSetting{[](Settings& s) -> bool& { return s.otlp.metrics; }}},
    {"export", "otlp.slow_calls",
     "Whether slow calls are sent, as spans with their GPU work as child spans.", Effect::kRestart,
     SwitchSetting{[](Settings& s) -> bool& { return s.otlp.slow_calls; }}},
    {"export", "otlp.profiles",
     "Whether profiles are sent: GPU time by the stacks that launched it, and host time in "
     "launches and probed calls; needs the flight recorder (trace.recorder). The signal is alpha: "
     "receivers must support version 1.10 of the protocol.",
     Effect::kRestart, SwitchSetting{[](Settings& s) -> bool& { return s.otlp.profiles; }}},
    {"export", "otlp.profile_interval_seconds", "Interval of profiles; each covers one interval.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.otlp.profile_interval_seconds; }, 5,
                    600}},
    {"export", "otlp.interval_seconds", "Interval of metrics.", Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.otlp.interval_seconds; }, 1, 3'600}},
    {"export", "otlp.timeout_seconds", "Timeout of one request; it is retried after that.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.otlp.timeout_seconds; }, 1, 300}},
    {"export", "otlp.queue_mib",
     "Memory limit in MiB for data that waits for the receiver, separately for metrics, slow calls "
     "and profiles; the oldest is dropped first and counted.",
     Effect::kRestart,
     IntegerSetting{[](Settings& s) -> uint64_t& { return s.otlp.queue_mib; }, 1, 1'024}},
    {"log", "level", "Lowest level that is logged.", Effect::kReload,
     ChoiceSetting{[](Settings& s) -> std::string& { return s.log.level; }, kLogLevels}},
};

// True when the rows of each section stand together and in the order of kSections.
constexpr bool rows_are_grouped() {
  size_t section = 0;
  for (const SettingRow& row : kRows) {
    while (section < std::size(kSections) && kSections[section] != row.section) ++section;
    if (section == std::size(kSections)) return false;
  }
  return true;
}
static_assert(rows_are_grouped());

// What an object may hold: of the section's rows whose keys begin with `prefix`, the next part.
std::vector<std::string_view> keys_of(std::string_view section, std::string_view prefix) {
  std::vector<std::string_view> keys;
  for (const SettingRow& row : kRows) {
    if (row.section != section || !row.key.starts_with(prefix)) continue;
    const std::string_view rest = row.key.substr(prefix.size());
    const std::string_view key = rest.substr(0, rest.find('.'));
    if (keys.empty() || keys.back() != key) keys.push_back(key);
  }
  return keys;
}

const SettingRow* find_row(std::string_view section, std::string_view key) {
  const auto* row = std::ranges::find_if(
      kRows, [&](const SettingRow& r) { return r.section == section && r.key == key; });
  return row == std::end(kRows) ? nullptr : row;
}

std::optional<double> find_number(const JsonNode& node) {
  if (const auto* number = std::get_if<uint64_t>(&node.value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(&node.value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&node.value)) return *number;
  return std::nullopt;
}

// Like JSON Schema, takes 1.0 and 1e3 for integers.
std::optional<uint64_t> find_integer(const JsonNode& node) {
  constexpr double kExactBelow = 9007199254740992;  // 2^53: integers below are exact in a double
  if (const auto* number = std::get_if<uint64_t>(&node.value)) return *number;
  const auto* number = std::get_if<double>(&node.value);
  if (!number || *number < 0 || *number >= kExactBelow || std::floor(*number) != *number)
    return std::nullopt;
  return static_cast<uint64_t>(*number);
}

// Stores the value when it fits. False: it does not. `hint` is filled where the kind knows better
// than the row's help.
struct Assign {
  const JsonNode& node;
  Settings& settings;
  std::string& hint;

  bool operator()(const IntegerSetting& kind) const {
    const std::optional<uint64_t> number = find_integer(node);
    if (!number || *number < kind.min || *number > kind.max) return false;
    kind.field(settings) = *number;
    return true;
  }
  bool operator()(const NumberSetting& kind) const {
    const std::optional<double> number = find_number(node);
    if (!number || *number < kind.min || *number > kind.max) return false;
    kind.field(settings) = *number;
    return true;
  }
  bool operator()(const SwitchSetting& kind) const {
    const auto* value = std::get_if<bool>(&node.value);
    if (value) kind.field(settings) = *value;
    return value != nullptr;
  }
  bool operator()(const ChoiceSetting& kind) const {
    const auto* text = std::get_if<std::string>(&node.value);
    if (!text) return false;
    if (std::ranges::find(kind.choices, *text) == kind.choices.end()) {
      hint = hint_for_unknown(*text, kind.choices, "");
      return false;
    }
    kind.field(settings) = *text;
    return true;
  }
  bool operator()(const TextSetting& kind) const {
    const auto* text = std::get_if<std::string>(&node.value);
    if (!text) return false;
    if (std::optional<std::string> fault = kind.find_fault(*text)) {
      hint = std::move(*fault);
      return false;
    }
    kind.field(settings) = *text;
    return true;
  }
  bool operator()(const NumberMapSetting& kind) const {
    const auto* object = std::get_if<JsonObject>(&node.value);
    if (!object) return false;
    std::map<std::string, double> values;
    for (const JsonMember& member : *object) {
      const std::optional<double> number = find_number(member.value);
      if (member.key.empty() || !number || *number < kind.min || *number > kind.max) {
        hint = "the value of " + quote_for_message(member.key) + " must be a number from " +
               format_number(kind.min) + " to " + format_number(kind.max);
        return false;
      }
      values[member.key] = *number;
    }
    kind.field(settings) = std::move(values);
    return true;
  }
  bool operator()(const MapSetting& kind) const {
    const auto* object = std::get_if<JsonObject>(&node.value);
    if (!object) return false;
    std::map<std::string, std::string> values;
    for (const JsonMember& member : *object) {
      const auto* text = std::get_if<std::string>(&member.value.value);
      if (!text) {
        hint = "the value of " + quote_for_message(member.key) + " must be a text";
        return false;
      }
      if (std::optional<std::string> fault = kind.find_fault(member.key, *text)) {
        hint = std::move(*fault);
        return false;
      }
      values[member.key] = *text;
    }
    kind.field(settings) = std::move(values);
    return true;
  }
};

struct DescribeExpected {
  std::string operator()(const NumberMapSetting& kind) const {
    return "an object of numbers from " + format_number(kind.min) + " to " +
           format_number(kind.max);
  }
  std::string operator()(const MapSetting& kind) const { return std::string(kind.format); }
  std::string operator()(const IntegerSetting& kind) const {
    return "an integer from " + std::to_string(kind.min) + " to " + std::to_string(kind.max);
  }
  std::string operator()(const NumberSetting& kind) const {
    return "a number from " + format_number(kind.min) + " to " + format_number(kind.max);
  }
  std::string operator()(const SwitchSetting&) const { return "true or false"; }
  std::string operator()(const ChoiceSetting& kind) const {
    return "one of " + join_names(kind.choices);
  }
  std::string operator()(const TextSetting& kind) const { return std::string(kind.format); }
};

// Whether the row's field is the same in both.
struct IsSame {
  Settings& a;
  Settings& b;
  template <class Kind>
  bool operator()(const Kind& kind) const {
    return kind.field(a) == kind.field(b);
  }
};

// An object of settings: a section, or one within it, whose rows' keys begin with `prefix`.
struct KeyPlace {
  std::string_view section;
  std::string path;
  std::string prefix;  // "otlp."; empty = the section itself
};

void parse_keys(const KeyPlace& place, const JsonNode& node, Settings& settings,
                std::vector<ConfigError>& errors) {
  const std::vector<std::string_view> keys = keys_of(place.section, place.prefix);
  const std::string name = place.prefix.empty() ? std::string(place.section)
                                                : place.prefix.substr(0, place.prefix.size() - 1);
  const std::string known = name + " has " + join_names(keys);
  const auto* object = std::get_if<JsonObject>(&node.value);
  if (!object) {
    errors.push_back(
        {place.path, "must be an object of settings, is " + describe_node(node), known});
    return;
  }
  for (const JsonMember& member : *object) {
    const std::string member_path = json_child_path(place.path, member.key);
    const std::string key = place.prefix + member.key;
    const SettingRow* row = find_row(place.section, key);
    if (!row && member.key.find('.') == std::string::npos &&
        !keys_of(place.section, key + ".").empty()) {
      parse_keys({place.section, member_path, key + "."}, member.value, settings, errors);
      continue;
    }
    // A dot in a key is no way around the nesting.
    if (!row || member.key.find('.') != std::string::npos) {
      errors.push_back({member_path, "unknown setting", hint_for_unknown(member.key, keys, known)});
      continue;
    }
    std::string hint;
    if (std::visit(Assign{member.value, settings, hint}, row->kind)) continue;
    if (hint.empty()) hint = row->help;
    errors.push_back({member_path,
                      "must be " + describe_expected(*row) + ", is " + describe_node(member.value),
                      std::move(hint)});
  }
}

}  // namespace

std::span<const SettingRow> setting_rows() { return kRows; }

std::span<const std::string_view> settings_sections() { return kSections; }

std::string describe_expected(const SettingRow& row) {
  return std::visit(DescribeExpected{}, row.kind);
}

std::vector<std::string> list_restart_settings(const Settings& old, const Settings& now) {
  Settings a = old;  // the rows' fields are writable
  Settings b = now;
  std::vector<std::string> names;
  for (const SettingRow& row : kRows) {
    if (row.effect == Effect::kReload || std::visit(IsSame{a, b}, row.kind)) continue;
    names.push_back(std::string(row.section) + "." + std::string(row.key));
  }
  return names;
}

void parse_settings_section(std::string_view section, const JsonNode& node, Settings& settings,
                            std::vector<ConfigError>& errors) {
  parse_keys({section, json_child_path("$", section), ""}, node, settings, errors);
}

}  // namespace gpuperf
