#pragma once

// Sorting by a field's name, for the lists that the daemon gives in one order only.

#include <google/protobuf/message.h>

#include <algorithm>
#include <string>
#include <vector>

#include "client/status.h"

namespace gpuperf::client {

// "pid, comm, calls": the fields a list of this type can be sorted by.
std::string list_sort_fields(const google::protobuf::Descriptor& type);
// The field, or kInvalidArgument naming those there are.
Result<const google::protobuf::FieldDescriptor*> find_sort_field(
    const google::protobuf::Descriptor& type, const std::string& name);
// The same, for a name that was perhaps not given: before the daemon is asked for anything.
Status check_sort_field(const google::protobuf::Descriptor& type, const std::string& name);
// Numbers descending, text ascending: what is looked for comes first.
bool comes_before(const google::protobuf::Message& left, const google::protobuf::Message& right,
                  const google::protobuf::FieldDescriptor& field);

// Then cut to `limit` rows; 0 = all. An empty name keeps the daemon's order.
template <typename Row>
Status sort_rows(std::vector<Row>& rows, const std::string& name, uint64_t limit) {
  if (!name.empty()) {
    ASSIGN_OR_RETURN(const auto* field, find_sort_field(*Row::descriptor(), name));
    std::stable_sort(rows.begin(), rows.end(), [field](const Row& left, const Row& right) {
      return comes_before(left, right, *field);
    });
  }
  if (limit > 0 && rows.size() > limit) rows.resize(limit);
  return absl::OkStatus();
}

}  // namespace gpuperf::client
