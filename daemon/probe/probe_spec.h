#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gpuperf {

// One function somebody wants probed, as the configuration says it.
struct ProbeSpec {
  std::string category;  // section name without "_func_sym" or "_sym"
  std::string function;  // display name
  std::string symbol;
  std::string library;                        // glob or path; empty = the section's libraries
  std::optional<uint64_t> slow_threshold_ns;  // empty = slow.default_threshold_ms
  bool enabled = true;
  bool operator==(const ProbeSpec&) const = default;
};

// The probe sections of a configuration.
struct ProbeConfig {
  std::vector<ProbeSpec> probes;  // in file order
  // Category -> globs on the file name, or absolute paths (globs too). A category without an entry
  // here matches the executables of watched processes.
  std::map<std::string, std::vector<std::string>> libraries;
  bool operator==(const ProbeConfig&) const = default;
};

}  // namespace gpuperf
