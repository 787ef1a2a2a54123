#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <string>
#include <string_view>

#include "client/table.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// The functions that the overhead budget has suspended, as a table; each line begins with `indent`.
std::string render_suspension_table(
    const google::protobuf::RepeatedPtrField<v1::Suspension>& suspensions, std::string_view indent,
    const TextStyle& style);

}  // namespace gpuperf::client
