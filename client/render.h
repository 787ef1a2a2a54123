#pragma once

// The daemon's messages as JSON and CSV, from their own descriptors: a field added to the proto
// appears in both without a line of code here.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/table.h"

namespace gpuperf::client {

enum class Format { kTable, kJson, kCsv };

// Every field under its proto name, empty ones too; 64-bit integers are numbers, enums short names,
// absent messages null.
nlohmann::ordered_json to_json(const google::protobuf::Message& message);

// "PROBE_STATE_ENTRY_ONLY" -> "entry_only".
std::string make_short_name(const google::protobuf::EnumValueDescriptor& value);
// The short name of an enum field's value; the number where this client does not know it.
template <typename Enum>
std::string make_short_name(Enum value) {
  const auto* found = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return found == nullptr ? std::to_string(static_cast<int>(value)) : make_short_name(*found);
}

enum class JsonShape { kIndented, kOneLine };
// With the line break that ends it.
std::string write_json(const nlohmann::ordered_json& json, JsonShape shape);

// Quoted as RFC 4180 asks, lines end in "\n". Nested messages and lists are JSON text, absent
// messages empty. On a terminal control characters are escaped, as everywhere.
std::string write_csv_header(const google::protobuf::Descriptor& type);
std::string write_csv_row(const google::protobuf::Message& row, const TextStyle& style);

// Objects as CSV; `keys` is an object with the keys they all have.
std::string write_csv(const nlohmann::ordered_json& keys, const nlohmann::ordered_json& objects,
                      const TextStyle& style);

// Rows as a JSON array or as CSV. `format` is not kTable.
template <typename Row>
std::string render_rows(const std::vector<Row>& rows, Format format, JsonShape shape,
                        const TextStyle& style) {
  if (format == Format::kCsv) {
    std::string text = write_csv_header(*Row::descriptor());
    for (const Row& row : rows) text += write_csv_row(row, style);
    return text;
  }
  auto array = nlohmann::ordered_json::array();
  for (const Row& row : rows) array.push_back(to_json(row));
  return write_json(array, shape);
}

// One message as a JSON object or as CSV with one row. `format` is not kTable.
std::string render_message(const google::protobuf::Message& message, Format format, JsonShape shape,
                           const TextStyle& style);

}  // namespace gpuperf::client
