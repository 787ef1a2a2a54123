#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/code/code_file.h"
#include "daemon/probe/code/code_reach.h"

namespace gpuperf {

// The table behind a compiled `switch`.
struct JumpTable {
  uint64_t vaddr = 0;
  uint64_t count = 0;
  bool is_relative = false;  // entries of 4 bytes, from the table's address; else addresses
  // The reasoning holds while nothing jumps between these two instructions: behind the first, up to
  // and including the second.
  uint64_t straight_begin = 0;
  uint64_t straight_end = 0;
  bool operator==(const JumpTable&) const = default;
};

// The table that the indirect jump `jump` goes by, when it has the form compilers give it:
//   cmp $count-1, index; ja default; lea table(%rip), base; movslq (base,index,4), offset;
//   add base, offset; jmp *offset        or        cmp; ja; jmp *table(,index,8)
// The lea may stand anywhere, the rest in this order.
std::optional<JumpTable> find_jump_table(CodeReach& reach, CodePlace jump);

// Where its entries lead. Errors: what reading the file said.
Result<std::vector<uint64_t>> read_jump_table(const CodeFile& file, const JumpTable& table);

}  // namespace gpuperf
