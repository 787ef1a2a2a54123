#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/snapshot.h"
#include "gpuperf/v1/model.pb.h"

namespace gpuperf {

// Of Snapshot::named_stacks; null = it is not named.
StackPtr find_named_stack(const Snapshot& snapshot, uint64_t stack_id);
void add_frames(const std::vector<StackFrame>& stack,
                google::protobuf::RepeatedPtrField<v1::StackFrame>& frames);
// 16 hexadecimal digits, not a number: most readers of JSON keep 53 bits of one. Empty of a null
// one.
std::string format_stack_id(const StackPtr& stack);

}  // namespace gpuperf
