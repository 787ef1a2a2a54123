#include "daemon/config/argument_type.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "daemon/config/error_text.h"

namespace gpuperf {
namespace {

struct TypeRow {
  std::string_view name;
  ArgumentFormat format;
  uint8_t size_bytes;
};
constexpr TypeRow kTypes[] = {
    {"i8", ArgumentFormat::kSigned, 1},    {"i16", ArgumentFormat::kSigned, 2},
    {"i32", ArgumentFormat::kSigned, 4},   {"i64", ArgumentFormat::kSigned, 8},
    {"u8", ArgumentFormat::kUnsigned, 1},  {"u16", ArgumentFormat::kUnsigned, 2},
    {"u32", ArgumentFormat::kUnsigned, 4}, {"u64", ArgumentFormat::kUnsigned, 8},
    {"f32", ArgumentFormat::kFloat, 4},    {"f64", ArgumentFormat::kFloat, 8},
    {"bool", ArgumentFormat::kBool, 1},    {"hex", ArgumentFormat::kHex, 8},
    {"pointer", ArgumentFormat::kHex, 8},  {"string", ArgumentFormat::kString, 8},
};

// "i64[4]" -> 4, and `text` becomes "i64". Nothing when there are no brackets with a number.
std::optional<uint32_t> split_count(std::string_view& text) {
  const size_t open = text.find('[');
  if (open == text.npos || !text.ends_with(']')) return std::nullopt;
  const std::string_view digits = text.substr(open + 1, text.size() - open - 2);
  uint32_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  text = text.substr(0, open);
  return count;
}

}  // namespace

std::optional<ArgumentType> read_argument_type(const JsonNode& node, const FaultPlace& place) {
  const auto* text = std::get_if<std::string>(&node.value);
  std::string_view name = text ? std::string_view(*text) : std::string_view{};
  const std::optional<uint32_t> count = split_count(name);
  const auto* row = std::ranges::find(kTypes, name, &TypeRow::name);
  if (row == std::end(kTypes) || (count && row->format == ArgumentFormat::kString)) {
    place.report("must be a type, is " + describe_node(node),
                 "types are i8 to i64, u8 to u64, f32, f64, bool, hex, string, and arrays such as "
                 "i64[4]");
    return std::nullopt;
  }
  const uint32_t most = GPUPERF_BLOB_BYTES / row->size_bytes;
  if (count && (*count == 0 || *count > most)) {
    place.report("must have 1 to " + std::to_string(most) + " elements, is " + describe_node(node),
                 std::to_string(GPUPERF_BLOB_BYTES) + " bytes of an array are kept");
    return std::nullopt;
  }
  return ArgumentType{row->format, row->size_bytes, static_cast<uint8_t>(count.value_or(0))};
}

std::string_view argument_type_pattern() {
  return R"(^([iu](8|16|32|64)|f32|f64|bool|hex|pointer)(\[[1-9][0-9]?\])?$|^string$)";
}

}  // namespace gpuperf
