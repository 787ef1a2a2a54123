#include "daemon/config/error_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace gpuperf {
namespace {

constexpr size_t kQuotedMaxBytes = 60;    // a line of a terminal holds path, message and this
constexpr size_t kComparedMaxBytes = 64;  // longer names are nobody's typing mistake
constexpr size_t kWordMinBytes = 3;       // "log" may stand for "log_level", "l" may not

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

// Letters to insert, delete, replace or swap with their neighbour to get from one to the other.
size_t count_edits(std::string_view from, std::string_view to) {
  std::array<std::vector<size_t>, 3> rows;  // [0]: two letters back, [1]: one back, [2]: this
  for (auto& row : rows) row.resize(to.size() + 1);
  std::iota(rows[1].begin(), rows[1].end(), 0);
  for (size_t i = 1; i <= from.size(); ++i) {
    rows[2][0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replace = rows[1][j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      rows[2][j] = std::min({rows[1][j] + 1, rows[2][j - 1] + 1, replace});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        rows[2][j] = std::min(rows[2][j], rows[0][j - 2] + 1);
    }
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
  }
  return rows[1][to.size()];
}

// True when `part` stands in `whole` between underscores: "threshold" in "default_threshold_ms".
bool contains_words(std::string_view whole, std::string_view part) {
  for (size_t at = whole.find(part); at != whole.npos; at = whole.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || whole[at - 1] == '_') && (end == whole.size() || whole[end] == '_'))
      return true;
  }
  return false;
}

// The nearest name that is at most so many edits away.
std::optional<std::string_view> find_within(std::string_view name,
                                            std::span<const std::string_view> known,
                                            size_t max_edits) {
  std::optional<std::string_view> nearest;
  size_t fewest = max_edits + 1;
  for (const std::string_view candidate : known) {
    const size_t edits = count_edits(name, candidate);
    if (edits < fewest && edits < candidate.size()) {
      nearest = candidate;
      fewest = edits;
    }
  }
  return nearest;
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

std::optional<std::string_view> find_nearest_name(std::string_view name,
                                                  std::span<const std::string_view> known) {
  if (name.empty() || name.size() > kComparedMaxBytes) return std::nullopt;
  // A third of the letters wrong is another word, except that one wrong letter always counts.
  const auto nearest = find_within(name, known, std::max<size_t>(1, name.size() / 3));
  if (nearest) return nearest;
  for (const std::string_view candidate : known) {
    if (std::min(name.size(), candidate.size()) < kWordMinBytes) continue;
    if (contains_words(name, candidate) || contains_words(candidate, name) ||
        name.starts_with(candidate) || candidate.starts_with(name))
      return candidate;
  }
  return std::nullopt;
}

std::optional<std::string_view> find_misspelt_name(std::string_view name,
                                                   std::span<const std::string_view> known) {
  constexpr size_t kLongWordBytes = 8;
  if (name.empty() || name.size() > kComparedMaxBytes) return std::nullopt;
  return find_within(name, known, name.size() < kLongWordBytes ? 1 : 2);
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
