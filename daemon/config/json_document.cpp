#include "daemon/config/json_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "daemon/config/error_text.h"

namespace gpuperf {
namespace {

constexpr std::string_view kNumberOverflow = "number overflow";          // the parser's words
constexpr std::string_view kNumberTooLarge = "the number is too large";  // ours

// "line 3, column 7" of the byte at `offset_bytes`; columns count characters, not bytes.
std::string describe_position(std::string_view text, size_t offset_bytes) {
  const std::string_view before = text.substr(0, std::min(offset_bytes, text.size()));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0: the first line
  const auto is_newline = [](char c) { return c == '\n'; };
  const auto begins_character = [](char c) { return (c & 0xc0) != 0x80; };
  const auto line = 1 + std::ranges::count_if(before, is_newline);
  const auto column = 1 + std::ranges::count_if(before.substr(line_start), begins_character);
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// What the parser says, without the parts we say ourselves (exception id, position) and without
// the text it read last, which can be as long as the file.
std::string shorten_parser_message(std::string_view message) {
  if (const size_t id_end = message.find("] "); message.starts_with('[') && id_end != message.npos)
    message.remove_prefix(id_end + 2);
  if (message.starts_with("parse error at ")) {
    if (const size_t position_end = message.find(": "); position_end != message.npos)
      message.remove_prefix(position_end + 2);
  }
  message = message.substr(0, message.find("; last read"));
  if (message.starts_with(kNumberOverflow)) return std::string(kNumberTooLarge);
  return std::string(message);
}

// Where the fault begins: `position_bytes` counts the bytes read, the offending token included.
size_t offset_of_fault(std::string_view text, size_t position_bytes, std::string_view last_token,
                       std::string_view message) {
  const size_t end = std::min(position_bytes, text.size());
  const bool whole_token = message.find("- unexpected ") != message.npos;
  if (whole_token && last_token.size() <= end &&
      text.substr(end - last_token.size(), last_token.size()) == last_token)
    return end - last_token.size();
  return position_bytes == 0 ? 0 : position_bytes - 1;
}

std::string hint_for_syntax(std::string_view text, size_t offset_bytes, std::string_view message) {
  if (message.find("UTF-8") != message.npos) return "save the file as UTF-8";
  if (message == kNumberTooLarge) return "use a smaller number: no setting is this large";
  if (message.find("control character") != message.npos)
    return "close the string on its line; a line break or tab inside it is written \\n or \\t";
  const std::string_view before = text.substr(0, std::min(offset_bytes, text.size()));
  const std::string_view fault = text.substr(before.size());
  if (fault.empty()) return "the file ends too early: look for a missing }, ] or quotation mark";
  const size_t last = before.find_last_not_of(" \t\r\n");
  const bool follows_comma = last != before.npos && before[last] == ',';
  if (follows_comma && (fault[0] == '}' || fault[0] == ']')) return "remove the comma before it";
  if (fault[0] == '/' || fault[0] == '#') return "JSON has no comments: remove it";
  if (fault[0] == '\'') return "write strings in double quotes";
  if (fault.starts_with("NaN") || fault.starts_with("Inf"))
    return "write the number in digits: JSON has no NaN and no Infinity";
  if (message.ends_with("expected end of input")) return "remove what follows the last }";
  if (message.ends_with("expected '}'") || message.ends_with("expected ']'"))
    return "look for a missing comma or closing bracket before it";
  return "write each entry as \"key\": value, with a comma between entries";
}

// Builds the tree from the parser's events. Nesting is bounded by kJsonMaxDepth.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string_view text, std::vector<ConfigError>& errors)
      : text_(text), errors_(errors) {}

  JsonNode take_root() { return std::move(root_); }

  bool null() override { return add(JsonNode{nullptr}); }
  bool boolean(bool value) override { return add(JsonNode{value}); }
  bool number_integer(number_integer_t value) override { return add(JsonNode{int64_t{value}}); }
  bool number_unsigned(number_unsigned_t value) override { return add(JsonNode{uint64_t{value}}); }
  bool number_float(number_float_t value, const string_t&) override { return add(JsonNode{value}); }
  bool string(string_t& value) override { return add(JsonNode{std::move(value)}); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(size_t) override { return open(JsonNode{JsonObject{}}); }
  bool start_array(size_t) override { return open(JsonNode{JsonArray{}}); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.key = std::move(name);
    if (!level.keys_seen.insert(level.key).second) {
      errors_.push_back({path_to_child(), "duplicate key",
                         "a key may appear only once in an object: remove or rename one"});
    }
    return true;
  }

  bool parse_error(size_t position_bytes, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    std::string message = shorten_parser_message(error.what());
    const size_t offset_bytes = offset_of_fault(text_, position_bytes, last_token, message);
    std::string hint = hint_for_syntax(text_, offset_bytes, message);
    errors_.push_back(
        {describe_position(text_, offset_bytes), std::move(message), std::move(hint)});
    return false;
  }

 private:
  // One object or array not yet closed, outermost first.
  struct Level {
    JsonNode node;
    std::string key;  // of the member being read, when an object
    std::unordered_set<std::string> keys_seen;
  };

  std::string path_to_child() const {
    std::string path = "$";
    for (const Level& level : levels_) {
      if (const auto* array = std::get_if<JsonArray>(&level.node.value)) {
        path += "[" + std::to_string(array->size()) + "]";
      } else {
        path = json_child_path(path, level.key);
      }
    }
    return path;
  }

  bool add(JsonNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return true;
    }
    Level& level = levels_.back();
    if (auto* array = std::get_if<JsonArray>(&level.node.value)) {
      array->push_back(std::move(node));
    } else {
      std::get<JsonObject>(level.node.value).push_back({level.key, std::move(node)});
    }
    return true;
  }

  bool open(JsonNode node) {
    if (levels_.size() == kJsonMaxDepth) {
      errors_.push_back({path_to_child(),
                         "nested deeper than " + std::to_string(kJsonMaxDepth) + " levels",
                         "no setting needs this: look for an extra [ or {"});
      return false;
    }
    levels_.push_back({std::move(node), {}, {}});
    return true;
  }

  bool close() {
    JsonNode node = std::move(levels_.back().node);
    levels_.pop_back();
    return add(std::move(node));
  }

  const std::string_view text_;
  std::vector<ConfigError>& errors_;
  std::vector<Level> levels_;
  JsonNode root_;
};

}  // namespace

bool JsonNode::operator==(const JsonNode& other) const { return value == other.value; }

std::optional<JsonNode> parse_json_document(std::string_view text,
                                            std::vector<ConfigError>& errors) {
  // The parser takes a NUL for the end of the text and would ignore what follows.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    errors.push_back({describe_position(text, nul), "contains a NUL byte, so it is not text",
                      "save the file as UTF-8"});
    return std::nullopt;
  }
  TreeBuilder builder(text, errors);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  return builder.take_root();
}

}  // namespace gpuperf
