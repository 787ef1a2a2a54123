#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/snapshot.h"

namespace gpuperf {

// An address of a stack. What a call returns to may already be the next function's, so it is looked
// up one byte back, in the call instruction; where a signal or an interrupt stopped the thread, and
// where a function begins, the address is that of the code meant: exact.
struct CodeAddress {
  uint64_t address = 0;
  bool is_exact = false;
  bool operator==(const CodeAddress&) const = default;
};

// Of a byte of the instruction meant.
constexpr uint64_t get_looked_up_address(const CodeAddress& code) {
  return code.is_exact ? code.address : code.address - 1;
}

// Frames of one address, never none: functions inlined there, innermost first, then the function
// that has the code. All but the last are `is_inlined`, so that groups can be told apart when they
// stand one behind the other.
using FrameGroup = std::vector<StackFrame>;

std::vector<CodeAddress> to_return_addresses(const std::vector<uint64_t>& addresses);

}  // namespace gpuperf
