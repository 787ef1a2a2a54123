#pragma once

#include <cstdint>

namespace gpuperf {

// Where to probe the function that begins at `function_offset_bytes` of the open file `fd`: behind
// an `endbr64` that a `push` follows, else at its beginning.
//
// The kernel emulates a `push` within the trap but steps over `endbr64` out of line, which costs
// five to eight times as much (docs/decisions/0002). `endbr64` changes nothing, nobody jumps behind
// it past the beginning, and before the push the return address is still on top of the stack, so
// arguments, return probes and stack pointers are the same there.
uint64_t place_probe(int fd, uint64_t function_offset_bytes);

}  // namespace gpuperf
