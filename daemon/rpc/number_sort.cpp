#include "daemon/rpc/number_sort.h"

#include <spdlog/fmt/fmt.h>

namespace gpuperf {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

bool is_numeric(const FieldDescriptor& field) {
  if (field.is_repeated()) return false;
  return field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
}

std::string list_fields(const Descriptor& type, std::string_view text_field) {
  std::string names(text_field);
  for (int i = 0; i < type.field_count(); ++i) {
    if (is_numeric(*type.field(i))) names += ", " + type.field(i)->name();
  }
  return names;
}

}  // namespace

Result<const FieldDescriptor*> find_number_field(const Descriptor& type, std::string_view name,
                                                 std::string_view text_field) {
  if (name == text_field) return nullptr;
  const FieldDescriptor* field = type.FindFieldByName(std::string(name));
  if (field != nullptr && is_numeric(*field)) return field;
  return absl::InvalidArgumentError(
      fmt::format("sort: cannot sort by \"{}\"; fields: {}", name, list_fields(type, text_field)));
}

long double get_number(const google::protobuf::Message& row, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *row.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32) return reflection.GetUInt32(row, &field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    return static_cast<long double>(reflection.GetUInt64(row, &field));
  }
  return reflection.GetDouble(row, &field);
}

}  // namespace gpuperf
