#include "daemon/rpc/stack_to_proto.h"

#include <spdlog/fmt/fmt.h>

#include "daemon/model/display_text.h"

namespace gpuperf {

StackPtr find_named_stack(const Snapshot& snapshot, uint64_t stack_id) {
  const auto found = snapshot.named_stacks.find(stack_id);
  return found == snapshot.named_stacks.end() ? nullptr : found->second;
}

void add_frames(const std::vector<StackFrame>& stack,
                google::protobuf::RepeatedPtrField<v1::StackFrame>& frames) {
  for (const StackFrame& frame : stack) {
    v1::StackFrame& added = *frames.Add();
    added.set_symbol(to_valid_utf8(frame.symbol));
    added.set_module(to_valid_utf8(frame.module));
    added.set_offset_bytes(frame.offset_bytes);
    added.set_address(frame.address);
    added.set_file(to_valid_utf8(frame.file));
    added.set_line(frame.line);
    added.set_inlined(frame.is_inlined);
    added.set_kind(std::string(get_frame_kind_name(frame.kind)));
  }
}

std::string format_stack_id(const StackPtr& stack) {
  return stack ? fmt::format("{:016x}", stack->id) : "";
}

}  // namespace gpuperf
