#pragma once

// Sorting rows by a numeric field that a request names.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// The numeric field of this name; null for `text_field`, by which rows are sorted before.
// INVALID_ARGUMENT names the fields there are.
Result<const google::protobuf::FieldDescriptor*> find_number_field(
    const google::protobuf::Descriptor& type, std::string_view name, std::string_view text_field);
// long double holds every uint64 and every double exactly on the machines CUDA runs on.
long double get_number(const google::protobuf::Message& row,
                       const google::protobuf::FieldDescriptor& field);

// By the field, descending; `name_order` decides between equal ones, so that lists do not jump
// about, and alone where the field is `text_field`. Empty = total_ns.
template <typename Row, typename NameOrder>
Status sort_by_number(std::string_view field_name, std::string_view text_field,
                      NameOrder name_order, std::vector<Row>& rows) {
  std::ranges::stable_sort(rows, std::ranges::less(), name_order);
  ASSIGN_OR_RETURN(const google::protobuf::FieldDescriptor* field,
                   find_number_field(*Row::descriptor(),
                                     field_name.empty() ? "total_ns" : field_name, text_field));
  if (field == nullptr) return absl::OkStatus();
  std::ranges::stable_sort(rows, std::ranges::greater(),
                           [field](const Row& row) { return get_number(row, *field); });
  return absl::OkStatus();
}

}  // namespace gpuperf
