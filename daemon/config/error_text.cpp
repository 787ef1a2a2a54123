#include "daemon/config/error_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "daemon/base/nearest_name.h"

namespace gpuperf {
namespace {

constexpr size_t kQuotedMaxBytes = 60;  // a line of a terminal holds path, message and this

// Length of a control character at the start of `text`: 0 when there is none.
size_t control_character_bytes(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x20 || first == 0x7f) return 1;
  // U+0080 to U+009F in UTF-8: some terminals obey them.
  if (first == 0xc2 && text.size() > 1 && static_cast<uint8_t>(text[1]) < 0xa0) return 2;
  return 0;
}

bool is_plain_word(std::string_view text) {
  const auto is_word_character = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && (text[0] < '0' || text[0] > '9') &&
         std::ranges::all_of(text, is_word_character);
}

std::string escape(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string escaped;
  while (!text.empty()) {
    size_t used = 1;
    if (const size_t control = control_character_bytes(text); control != 0) {
      const auto code = static_cast<uint8_t>(text[control - 1]);
      escaped += "\\u00";
      escaped += kHex[code >> 4];
      escaped += kHex[code & 15];
      used = control;
    } else {
      if (text[0] == '"' || text[0] == '\\') escaped += '\\';
      escaped += text[0];
    }
    text.remove_prefix(used);
  }
  return escaped;
}

}  // namespace

std::string json_child_path(std::string_view parent, std::string_view key) {
  std::string path(parent);
  if (is_plain_word(key)) return path.append(".").append(key);
  return path.append("[").append(quote_for_message(key)).append("]");
}

std::string quote_for_message(std::string_view text) {
  if (text.size() <= kQuotedMaxBytes) return '"' + escape(text) + '"';
  size_t end = kQuotedMaxBytes;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // not in the middle of a character
  return '"' + escape(text.substr(0, end)) + "...\"";
}

std::string format_number(double number) {
  constexpr double kPlainBelow = 1e15;  // longer ones read better with an exponent
  if (std::abs(number) < kPlainBelow && std::floor(number) == number)
    return std::to_string(static_cast<int64_t>(number));
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return std::string(buffer.data(), end.ptr);
}

std::string describe_node(const JsonNode& node) {
  struct Visitor {
    std::string operator()(std::nullptr_t) const { return "null"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(uint64_t value) const { return std::to_string(value); }
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return format_number(value); }
    std::string operator()(const std::string& value) const { return quote_for_message(value); }
    std::string operator()(const JsonArray&) const { return "an array"; }
    std::string operator()(const JsonObject&) const { return "an object"; }
  };
  return std::visit(Visitor{}, node.value);
}

std::string join_names(std::span<const std::string_view> names) {
  std::string joined;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) joined += i + 1 == names.size() ? " and " : ", ";
    joined += names[i];
  }
  return joined;
}

std::string hint_for_unknown(std::string_view name, std::span<const std::string_view> known,
                             std::string fallback) {
  const auto nearest = find_nearest_name(name, known);
  if (!nearest) return fallback;
  return "did you mean \"" + std::string(*nearest) + "\"?";
}

bool has_control_character(std::string_view text) {
  for (; !text.empty(); text.remove_prefix(1)) {
    if (control_character_bytes(text) != 0) return true;
  }
  return false;
}

}  // namespace gpuperf
