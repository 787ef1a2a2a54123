#include "client/sort.h"

#include <fmt/format.h>

namespace gpuperf::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool is_sortable(const FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
}

}  // namespace

std::string list_sort_fields(const Descriptor& type) {
  std::string names;
  for (int i = 0; i < type.field_count(); ++i) {
    if (!is_sortable(*type.field(i))) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", type.field(i)->name());
  }
  return names;
}

Result<const FieldDescriptor*> find_sort_field(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* field = type.FindFieldByName(name);
  if (field == nullptr || !is_sortable(*field)) {
    return absl::InvalidArgumentError(fmt::format(
        "cannot sort by \"{}\": no such field; there are {}", name, list_sort_fields(type)));
  }
  return field;
}

Status check_sort_field(const Descriptor& type, const std::string& name) {
  return name.empty() ? absl::OkStatus() : find_sort_field(type, name).status();
}

bool comes_before(const Message& left, const Message& right, const FieldDescriptor& field) {
  const auto& read = *left.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return read.GetInt32(left, &field) > read.GetInt32(right, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return read.GetInt64(left, &field) > read.GetInt64(right, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return read.GetUInt32(left, &field) > read.GetUInt32(right, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return read.GetUInt64(left, &field) > read.GetUInt64(right, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return read.GetDouble(left, &field) > read.GetDouble(right, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return read.GetFloat(left, &field) > read.GetFloat(right, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return read.GetBool(left, &field) && !read.GetBool(right, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return read.GetEnumValue(left, &field) > read.GetEnumValue(right, &field);
    case FieldDescriptor::CPPTYPE_STRING:
      return read.GetString(left, &field) < read.GetString(right, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return false;  // find_sort_field refuses it
  }
  return false;
}

}  // namespace gpuperf::client
