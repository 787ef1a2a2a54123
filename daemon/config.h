#pragma once

// The daemon's configuration: parsed, checked and with every default filled in.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/probe/probe_spec.h"

namespace gpuperf {

struct Settings {
  struct {
    double default_threshold_ms = 100;  // 0 = nothing is slow unless its probe says so
    uint64_t worst_per_function = 16;   // kept per function and process
    uint64_t recent = 1000;             // most recent kept beside them
    uint64_t log_per_second = 5;        // log lines; 0 = none
    bool stacks = true;
  } slow;
  struct {
    uint64_t interval_ms = 1000;      // how often the kernel's totals are read
    uint64_t max_cells = 8192;        // (function, process) pairs followed at once
    uint64_t keep_exited_seconds = 600;
    uint64_t max_exited_processes = 1000;
    uint64_t summary_interval_seconds = 60;  // 0 = no summary in the log
  } stats;
  struct {
    std::string listen = "127.0.0.1:9465";  // empty = off
    uint64_t max_series = 20000;
  } metrics;
  struct {
    std::string listen = "unix:/run/gpuperf/api.sock";  // empty = off
  } grpc;
  struct {
    std::string level = "info";
  } log;
};

struct Config {
  std::string text;  // as read
  Settings settings;
  ProbeConfig probes;
};

// One error, with its place and a way out.
struct ConfigError {
  std::string path;  // JSON path ("$.slow.recent"), or "line 3, column 7" where the text is not JSON
  std::string message;
  std::string hint;
  bool operator==(const ConfigError&) const = default;
};

// Every error of the text, or the configuration.
std::variant<Config, std::vector<ConfigError>> parse_config(std::string_view text);

// Every setting with its value in force, as a JSON object.
std::string render_settings_json(const Settings& settings);

// JSON Schema of the configuration file; docs/config.schema.json is this text.
std::string render_config_schema();

}  // namespace gpuperf
