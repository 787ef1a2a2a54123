#pragma once

// The probe sections and `libraries` of the configuration file.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/json_document.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

// A section the daemon knows by name: what it is for and where its symbols are looked for.
struct BuiltInSection {
  std::string_view key;  // "cuda_func_sym"
  std::string_view help;
  std::vector<std::string_view> libraries;  // empty: the executables of watched processes
};

const std::vector<BuiltInSection>& built_in_sections();

// Keys of the object that may stand in place of a symbol.
struct ProbeKeyRow {
  std::string_view key;
  std::string_view help;
};
std::span<const ProbeKeyRow> probe_key_rows();

// Category of a probe section ("cuda_func_sym" -> "cuda", "custom_sym" -> "custom"), or nullopt
// when the key does not end like one. The category may come out empty: that is an error of its own.
std::optional<std::string_view> find_section_category(std::string_view key);

// Adds every probe of the section to `probes`. Each fault found is added to `errors`; a probe with
// a fault is left out.
void parse_probe_section(std::string_view key, const JsonNode& node, std::vector<ProbeSpec>& probes,
                         std::vector<ConfigError>& errors);

// The probe `name` of `section` (a section's key, or its category), as it would stand in a file.
std::optional<ProbeSpec> parse_one_probe(std::string_view section, std::string_view name,
                                         const JsonNode& value, std::vector<ConfigError>& errors);

// Library globs of every category: the built-in ones, replaced by those of `node` (the value of
// `libraries`, or null when the file has none). `section_keys`: the probe sections of the file.
std::map<std::string, std::vector<std::string>> parse_libraries(
    const JsonNode* node, std::span<const std::string_view> section_keys,
    std::vector<ConfigError>& errors);

// Nanoseconds of a threshold in milliseconds. What is above zero stays above zero, since zero means
// "never".
uint64_t threshold_ns_from_ms(double threshold_ms);

}  // namespace gpuperf
