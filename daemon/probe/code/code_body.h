#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/code/code_map.h"

namespace gpuperf {

// An instruction that may leave its function.
struct BodyExit {
  uint64_t vaddr = 0;
  uint8_t condition = 0;  // as in the attach cookie, bpf/records.h
  bool emulated = false;  // by the kernel, see Instruction
  bool refused = false;
};

// All of a function's code, decoded.
struct CodeBody {
  std::vector<BodyExit> exits;    // by rising address
  std::vector<uint64_t> targets;  // vaddrs in it that something in it jumps to, landing pads of
                                  // exceptions among them; rising, each once
};

// Bounds on one function with its parts. The largest exported by CUDA 13 and Debian's libtorch has
// 41 KB; all but one of 31,000 have at most 294 exits.
constexpr uint64_t kMaxBodyBytes = 256 << 10;
constexpr size_t kMaxBodyParts = 17;
constexpr size_t kMaxBodyExits = 512;
constexpr size_t kMaxTableTargets = 65'536;

// Decodes the function of `size_bytes` at `vaddr`, and every part of it that lies elsewhere: code
// that it jumps to and that begins no function with a symbol, as far as its unwind information
// goes.
// Every byte is decoded and every jump accounted for, or an error says which was not: Unimplemented
// = code we do not understand; OutOfRange, DataLoss = the file contradicts itself;
// ResourceExhausted = beyond a bound; else what reading the file said.
Result<CodeBody> walk_body(CodeMap& code, uint64_t vaddr, uint64_t size_bytes);

}  // namespace gpuperf
