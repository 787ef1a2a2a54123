#include "daemon/view/escape.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <iterator>

#include "daemon/model/display_text.h"

namespace gpuperf {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

bool is_control(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return (byte < 0x20 && letter != '\t' && letter != '\n') || byte == 0x7f;
}

// U+FFFE and U+FFFF: valid UTF-8, but no characters of XML.
bool is_not_a_character(std::string_view rest) {
  return rest.starts_with("\xef\xbf\xbe") || rest.starts_with("\xef\xbf\xbf");
}

// U+2028 and U+2029 end lines in older scripts.
bool is_line_separator(std::string_view rest) {
  return rest.starts_with("\xe2\x80\xa8") || rest.starts_with("\xe2\x80\xa9");
}

}  // namespace

std::string escape_markup(std::string_view text) {
  const std::string valid = to_valid_utf8(text);
  std::string escaped;
  escaped.reserve(valid.size() + valid.size() / 8);
  for (size_t at = 0; at < valid.size(); ++at) {
    switch (const char letter = valid[at]) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        if (is_not_a_character(std::string_view(valid).substr(at))) {
          escaped += kReplacement;
          at += 2;
        } else if (is_control(letter)) {
          escaped += kReplacement;
        } else {
          escaped += letter;
        }
    }
  }
  return escaped;
}

std::string to_json_string(std::string_view text) {
  const std::string valid = to_valid_utf8(text);
  std::string json = "\"";
  json.reserve(valid.size() + 2);
  for (size_t at = 0; at < valid.size(); ++at) {
    const char letter = valid[at];
    const std::string_view rest = std::string_view(valid).substr(at);
    if (is_not_a_character(rest) || is_line_separator(rest)) {
      json += kReplacement;
      at += 2;
    } else if (letter == '"' || letter == '\\') {
      json += '\\';
      json += letter;
    } else if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f || letter == '<' ||
               letter == '>' || letter == '&' || letter == '\'') {
      fmt::format_to(std::back_inserter(json), "\\u{:04x}", static_cast<unsigned char>(letter));
    } else {
      json += letter;
    }
  }
  json += '"';
  return json;
}

std::string format_grouped(uint64_t value, int decimals) {
  uint64_t unit = 1;
  for (int i = 0; i < decimals; ++i) unit *= 10;
  std::string text = std::to_string(value / unit);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  if (decimals > 0) text += fmt::format(".{:0{}}", value % unit, decimals);
  return text;
}

}  // namespace gpuperf
