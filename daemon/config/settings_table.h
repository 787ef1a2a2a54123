#pragma once

// Every setting of the configuration, one row each. The rows drive parsing, the settings in force
// as JSON, the JSON Schema and the table in docs/configuration.md; the default is the value of the
// field in a fresh Settings.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/config/json_document.h"

namespace gpuperf {

struct IntegerSetting {
  uint64_t& (*field)(Settings&);
  uint64_t min;
  uint64_t max;
};

struct NumberSetting {
  double& (*field)(Settings&);
  double min;
  double max;
};

struct SwitchSetting {
  bool& (*field)(Settings&);
};

// One word out of a list.
struct ChoiceSetting {
  std::string& (*field)(Settings&);
  std::span<const std::string_view> choices;
};

// Text in a format of its own.
struct TextSetting {
  std::string& (*field)(Settings&);
  std::string_view format;          // as in "must be <format>"
  std::string_view schema_pattern;  // a regular expression at most as strict as `find_fault`
  std::optional<std::string> (*find_fault)(std::string_view text);  // a hint when not in format
};

// Names with a text each.
struct MapSetting {
  std::map<std::string, std::string>& (*field)(Settings&);
  std::string_view format;        // as in "must be <format>"
  std::string_view name_pattern;  // a regular expression at most as strict as `find_fault`
  std::optional<std::string> (*find_fault)(std::string_view name, std::string_view value);
};

// Names with a number each.
struct NumberMapSetting {
  std::map<std::string, double>& (*field)(Settings&);
  double min;
  double max;
};

// When a changed setting takes effect.
enum class Effect { kReload, kRestart };

struct SettingRow {
  std::string_view section;
  std::string_view key;  // ends in the unit, where there is one; "otlp.endpoint" is nested
  std::string_view help;
  Effect effect;
  std::variant<IntegerSetting, NumberSetting, SwitchSetting, ChoiceSetting, TextSetting, MapSetting,
               NumberMapSetting>
      kind;
};

// Rows of one section stand together, in the order of settings_sections().
std::span<const SettingRow> setting_rows();

// Every settings section, those without a key in this version too.
std::span<const std::string_view> settings_sections();

// Longest threshold that can be asked for: one day.
inline constexpr double kThresholdMaxMs = 86'400'000;

// Reads one settings section (path "$.slow") into `settings`.
void parse_settings_section(std::string_view section, const JsonNode& node, Settings& settings,
                            std::vector<ConfigError>& errors);

// "an integer from 0 to 10": what the value of a row must be.
std::string describe_expected(const SettingRow& row);

}  // namespace gpuperf
