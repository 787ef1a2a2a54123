#pragma once

// The daemon's configuration: parsed, checked and with every default filled in.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/overhead.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

struct Settings {
  struct {
    double default_threshold_ms = 100;  // 0 = nothing is slow unless its probe says so
    uint64_t worst_per_function = 16;   // kept per function and process
    uint64_t recent = 1000;             // most recent kept beside them
    uint64_t log_per_second = 5;        // log lines; 0 = none
    bool stacks = true;
    bool time_split = true;        // threads inside of calls are followed through the scheduler
    double adaptive_factor = 10;   // times the function's p99; 0 = only absolute thresholds
    double adaptive_floor_ms = 5;  // no adaptive threshold is below
  } slow;
  struct {
    uint64_t interval_ms = 1000;    // how often the kernel's totals are read
    uint64_t max_cells = 8192;      // (function, process) pairs followed at once
    uint64_t max_functions = 2048;  // functions followed at most, matches of wildcards included
    uint64_t keep_exited_seconds = 600;
    uint64_t max_exited_processes = 1000;
    uint64_t summary_interval_seconds = 60;  // 0 = no summary in the log
    uint64_t gpu_interval_ms = 1000;         // how often GPUs are read; 0 = never
    bool gpu_counters = true;                // hardware counters of GPUs are read, too
  } stats;
  struct {
    bool enabled = true;
    std::string socket;                           // empty = ingest.sock in the runtime directory
    uint64_t max_sessions = 1024;                 // processes connected at once
    uint64_t max_sessions_per_user = 768;         // of them
    uint64_t max_records_per_second = 2'000'000;  // of one session
    uint64_t sample_every = 1;                    // launches; 1 = all
    bool hooked_calls = true;  // calls are recorded by launch hooks, not by CUPTI
    bool allocations = false;  // of device memory, by CUPTI, which then stays attached
    uint64_t flush_interval_ms = 250;
    std::string injector_path;      // as the host names it; empty = looked for
    std::string cdi_spec;           // file; empty = off
    bool device_plugin = false;     // offer gpuperf.dev/inject to the kubelet
    std::string device_plugin_dir;  // empty = the kubelet's own
  } ingest;
  struct {
    bool attach = true;  // root may have the injected library brought into processes that run
  } sessions;
  struct {
    bool recorder = true;  // the last seconds are always in memory
    uint64_t recorder_seconds = 30;
    uint64_t recorder_mib = 64;
    uint64_t stacks_per_second = 100;  // of each thread, outside of captures; 0 = none
    uint64_t min_call_us = 20;         // shorter calls are recorded in captures only
    uint64_t long_call_us = 100;       // calls at least so long carry their caller's stack
    uint64_t max_capture_seconds = 600;
    uint64_t max_capture_mib = 256;  // of events, in memory
    uint64_t freeze_on_slow_ms = 0;  // a call at least so long freezes the recorder; 0 = none
    bool freeze_on_alert = false;    // POST /freeze on metrics.listen freezes the recorder
    uint64_t store_mib = 1024;
    uint64_t retention_days = 7;
  } trace;
  struct {
    bool enabled = false;  // HTTP requests of processes with steps are seen
  } requests;
  struct {
    OverheadLimits budget;     // of each process's time, for all of ours together
    bool launch_hooks = true;  // injected processes count their launches themselves
  } overhead;
  struct {
    std::map<std::string, std::string> rules;  // by name, as parse_qos_rule() reads them
    std::string file;                          // in which others demand; empty = none
    double detail_percent = 5;                 // what rules raise the budget to; 0 = no limit
    uint64_t release_seconds = 30;             // a breach ends that long after it was one
  } qos;
  struct {
    uint64_t memory_mib = 512;  // of the daemon, resident
  } limits;
  struct {
    std::string path = "/var/lib/gpuperf";  // folder; empty = slow calls are kept in memory only
    uint64_t max_mib = 512;
    uint64_t history_hours = 24;   // every slow call is kept that long
    uint64_t retention_days = 14;  // the worst of each function, process and hour that long
  } storage;
  struct {
    std::string listen = "127.0.0.1:9465";  // empty = off
    uint64_t max_series = 2000;             // sets (function, owner), 31 time series each
    uint64_t max_kernels = 100;             // names of kernels with sets of their own
    bool page = true;                       // the page for people, for this host only
  } metrics;
  struct {
    std::string listen = "unix:/run/gpuperf/api.sock";  // empty = off
    // Of TCP, where all three are needed.
    std::string cert_file;
    std::string key_file;
    std::string client_ca_file;
  } grpc;
  struct {
    std::string endpoint;  // empty = what OTEL_EXPORTER_OTLP_ENDPOINT says; without it, off
    std::string ca_file;   // empty = the system's authorities
    std::string cert_file;
    std::string key_file;
    std::map<std::string, std::string> headers;              // sent with every request
    std::map<std::string, std::string> resource_attributes;  // who sends: cluster, region
    bool metrics = true;
    bool slow_calls = true;
    bool profiles = false;
    uint64_t interval_seconds = 30;
    uint64_t profile_interval_seconds = 60;
    uint64_t timeout_seconds = 10;  // of one request
    uint64_t queue_mib = 8;         // what waits, of each signal
  } otlp;
  struct {
    std::string level = "info";
  } log;
};

// One error or warning, with its place and a way out.
struct ConfigError {
  std::string
      path;  // JSON path ("$.slow.recent"), or "line 3, column 7" where the text is not JSON
  std::string message;
  std::string hint;
  std::string file;  // of several; empty = the only one
  bool operator==(const ConfigError&) const = default;
};

// One of the files that make up a configuration.
struct ConfigFile {
  std::string path;
  std::string text;  // as read
};

struct Config {
  std::vector<ConfigFile> files;  // in the order in which they were merged
  Settings settings;
  ProbeConfig probes;
  std::vector<ConfigError> warnings;
};

// Largest configuration that is read: room for some ten thousand functions.
inline constexpr size_t kConfigMaxBytes = 1 << 20;

// Drop-in files that are read beside the configuration file.
inline constexpr size_t kConfigMaxDropIns = 64;

// The text of a configuration file. Reads only regular files, so a pipe or a device cannot hang it.
Result<std::string> read_config_file(const std::string& path);

// Where a configuration is read.
struct ConfigPlace {
  std::string path;
  bool may_be_missing = false;  // then drop-ins, where there are any, are the whole configuration
};

// The file and the drop-ins beside it, conf.d/*.json, in the order of their names.
Result<std::vector<ConfigFile>> read_config_files(const ConfigPlace& place);

// The configuration built into the daemon (deploy/config.json), for hosts without a file.
std::string_view default_config_text();

// Every error of the text, or the configuration. Duplicate keys come first, the rest in file order.
std::variant<Config, std::vector<ConfigError>> parse_config(std::string_view text);

// The same of files, each over those before. Where two give a key different values, the later one
// counts and a warning names both. No file: the functions shipped with the daemon.
std::variant<Config, std::vector<ConfigError>> parse_config(std::span<const ConfigFile> files);

// One probe given at run time: `section` is a section's key or its category, `value_json` what
// would stand behind `name` there. Every error, with its path in such a file, or the probe.
std::variant<ProbeSpec, std::vector<ConfigError>> parse_probe(std::string_view section,
                                                              std::string_view name,
                                                              std::string_view value_json);

// Warns of a section (a key, or its category) that the daemon has no libraries for, and names the
// one that was probably meant.
std::optional<ConfigError> find_section_warning(std::string_view section);

// Names ("grpc.listen") of the settings that differ and take effect only after a restart.
std::vector<std::string> list_restart_settings(const Settings& old, const Settings& now);

// "FILE: PATH: MESSAGE; hint: HINT". `file` stands for that of an error without one.
std::string render_config_error(std::string_view file, const ConfigError& error);

// One line per error, as `gpuperfd --check` prints them.
std::string render_config_errors(std::string_view file, std::span<const ConfigError> errors);

// Every setting with its value in force, as a JSON object.
std::string render_settings_json(const Settings& settings);

// JSON Schema of the configuration file; docs/config.schema.json is this text.
std::string render_config_schema();

// The table of settings in docs/configuration.md.
std::string render_settings_reference();

}  // namespace gpuperf
