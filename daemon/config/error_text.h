#pragma once

// Wording shared by everything that finds faults in a configuration.

#include <span>
#include <string>
#include <string_view>

#include "daemon/config/json_document.h"

namespace gpuperf {

// `parent`.key, or `parent`["key"] where the key is no plain word.
std::string json_child_path(std::string_view parent, std::string_view key);

// `text` in double quotes, with control characters escaped and the end cut off when long.
std::string quote_for_message(std::string_view text);

// The value as a message shows it: `"text"`, `5`, `an array`.
std::string describe_node(const JsonNode& node);

// A number without superfluous digits: 100, 0.5.
std::string format_number(double number);

// "a, b and c".
std::string join_names(std::span<const std::string_view> names);

// `did you mean "nearest"?`, or `fallback` when nothing is near.
std::string hint_for_unknown(std::string_view name, std::span<const std::string_view> known,
                             std::string fallback);

// True when `text` holds a control character (C0, DEL, C1).
bool has_control_character(std::string_view text);

}  // namespace gpuperf
