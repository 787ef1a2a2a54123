#include "client/render.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <fmt/format.h>

#include <string_view>

namespace gpuperf::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

ordered_json from_text(const FieldDescriptor& field, const std::string& text) {
  if (field.type() == FieldDescriptor::TYPE_BYTES) return absl::Base64Escape(text);
  return text;
}

ordered_json from_enum(const FieldDescriptor& field, int number) {
  const auto* value = field.enum_type()->FindValueByNumber(number);
  return value == nullptr ? std::to_string(number) : make_short_name(*value);
}

ordered_json read_single(const Message& message, const FieldDescriptor& field) {
  const Reflection& read = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return read.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return read.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return read.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return read.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return read.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return read.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return read.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return from_enum(field, read.GetEnumValue(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return from_text(field, read.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(read.GetMessage(message, &field));
  }
  return nullptr;
}

ordered_json read_element(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& read = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return read.GetRepeatedInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return read.GetRepeatedInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return read.GetRepeatedUInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return read.GetRepeatedUInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return read.GetRepeatedDouble(message, &field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return read.GetRepeatedFloat(message, &field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return read.GetRepeatedBool(message, &field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return from_enum(field, read.GetRepeatedEnumValue(message, &field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return from_text(field, read.GetRepeatedString(message, &field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(read.GetRepeatedMessage(message, &field, index));
  }
  return nullptr;
}

// What may be absent and is reads as null: zeros would be a claim.
ordered_json read_field(const Message& message, const FieldDescriptor& field) {
  if (field.has_presence() && !message.GetReflection()->HasField(message, &field)) return nullptr;
  if (!field.is_repeated()) return read_single(message, field);
  auto array = ordered_json::array();
  const int count = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < count; ++i) array.push_back(read_element(message, field, i));
  return array;
}

// Bytes that are not UTF-8 become U+FFFD: the document stays one that every parser reads.
std::string dump(const ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::string quote_csv(std::string text) {
  const bool bare = text.find_first_of(",\"\r\n") == std::string::npos &&
                    (text.empty() || (text.front() != ' ' && text.back() != ' '));
  if (bare) return text;
  return fmt::format("\"{}\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}));
}

std::string make_csv_cell(const ordered_json& value, const TextStyle& style) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : dump(value, -1);
  if (style.terminal) text = make_printable(text);
  return quote_csv(std::move(text));
}

// "ProbeState" -> "PROBE_STATE_".
std::string make_enum_prefix(const std::string& type_name) {
  std::string prefix;
  for (const char c : type_name) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return prefix + "_";
}

}  // namespace

std::string make_short_name(const google::protobuf::EnumValueDescriptor& value) {
  std::string_view name = value.name();
  const std::string prefix = make_enum_prefix(value.type()->name());
  if (name.size() > prefix.size() && name.substr(0, prefix.size()) == prefix) {
    name.remove_prefix(prefix.size());
  }
  return absl::AsciiStrToLower(std::string(name));
}

ordered_json to_json(const Message& message) {
  auto object = ordered_json::object();
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    object[type.field(i)->name()] = read_field(message, *type.field(i));
  }
  return object;
}

std::string write_json(const ordered_json& json, JsonShape shape) {
  return escape_json_controls(dump(json, shape == JsonShape::kIndented ? 2 : -1)) + "\n";
}

std::string write_csv(const ordered_json& keys, const ordered_json& objects,
                      const TextStyle& style) {
  std::vector<std::string> cells;
  for (const auto& [key, unused] : keys.items()) cells.push_back(key);
  std::string text = absl::StrJoin(cells, ",") + "\n";
  for (const ordered_json& object : objects) {
    cells.clear();
    for (const ordered_json& value : object) cells.push_back(make_csv_cell(value, style));
    text += absl::StrJoin(cells, ",") + "\n";
  }
  return text;
}

std::string write_csv_header(const Descriptor& type) {
  std::string line;
  for (int i = 0; i < type.field_count(); ++i) {
    line += fmt::format("{}{}", i == 0 ? "" : ",", type.field(i)->name());
  }
  return line + "\n";
}

std::string write_csv_row(const Message& row, const TextStyle& style) {
  std::string line;
  const Descriptor& type = *row.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const ordered_json value = read_field(row, *type.field(i));
    line += fmt::format("{}{}", i == 0 ? "" : ",", make_csv_cell(value, style));
  }
  return line + "\n";
}

std::string render_message(const Message& message, Format format, JsonShape shape,
                           const TextStyle& style) {
  if (format == Format::kJson) return write_json(to_json(message), shape);
  return write_csv_header(*message.GetDescriptor()) + write_csv_row(message, style);
}

}  // namespace gpuperf::client
