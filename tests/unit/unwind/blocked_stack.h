#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuperf {

// What a thread says of its stack before it blocks. Plain: it lies in memory shared by processes.
struct BlockedStack {
  uint64_t sp = 0;  // at entry of the function that blocks
  uint64_t bp = 0;
  uint64_t thread_pointer = 0;
  size_t caller_count = 0;
  uint64_t callers[128] = {};  // where they go on, innermost first
};

// Says where it is, writes a uint64_t 1 to a pipe and reads from another, in functions whose frames
// are of all usual forms and have no frame pointer where they need none.
void block_in_known_functions(BlockedStack& stack, int output, int input);

}  // namespace gpuperf
