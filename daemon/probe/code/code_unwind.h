#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/code/code_file.h"

namespace gpuperf {

// A stretch of code with one unwind description: a function, or the part of one that the compiler
// moved away because it is rarely run.
struct CodeFrame {
  uint64_t begin = 0;  // vaddr
  uint64_t end = 0;
  std::optional<uint64_t> exception_table;  // vaddr of its LSDA
  bool operator==(const CodeFrame&) const = default;
};

// The description that covers `vaddr`, from .eh_frame_hdr's search table and .eh_frame, read anew
// at each call: 20 reads for 100,000 functions. Nothing when the file has no such table or none
// covers it. Layout: Linux Standard Base, "Exception Frames".
// Errors: DataLoss = damaged; Unimplemented = an encoding that no linker on x86-64 writes.
Result<std::optional<CodeFrame>> find_frame(const CodeFile& file, uint64_t vaddr);

// Where execution goes on after an exception: the landing pads in a frame's exception table,
// addresses with repeats. Errors as above; ResourceExhausted = a table beyond the bound.
Result<std::vector<uint64_t>> read_landing_pads(const CodeFile& file, const CodeFrame& frame);

}  // namespace gpuperf
