#pragma once

// Where in a function its probes sit: docs/decisions/0005 has the rules and why they hold.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/snapshot.h"
#include "daemon/probe/code/code_map.h"
#include "daemon/probe/elf/elf_symbols.h"

namespace gpuperf {

// Where the entry of a function is probed.
struct Placement {
  uint64_t offset_bytes = 0;  // in the file
  HitCost hit_cost = HitCost::kUnknown;
  // Set when the function is nothing but a jump to another of the same file: where that begins.
  // Both would count the same call. A jump through the PLT goes there unless another library of the
  // process defines the same symbol earlier.
  std::optional<uint64_t> thunk_target_offset_bytes;
  bool operator==(const Placement&) const = default;
};

// An instruction that leaves a function.
struct ExitSite {
  uint64_t offset_bytes = 0;  // in the file
  uint8_t condition = 0;      // as in the attach cookie, bpf/records.h
  HitCost hit_cost = HitCost::kUnknown;
  bool operator==(const ExitSite&) const = default;
};

// The cheapest address at which a probe sees every call once, with the return address on top of the
// stack and the integer arguments in their registers: the symbol's own, or one a few instructions
// later. Never one of `exits`, unless the function begins with it.
// FailedPrecondition = the kernel refuses to probe there and there is no other place.
Result<Placement> place_entry(CodeMap& code, const FunctionSymbol& function,
                              std::span<const ExitSite> exits = {});

// Every instruction by which the function is left, exceptions aside, by rising address: its returns
// and its jumps to other functions, those in the parts that the compiler put elsewhere too. A jump
// is an exit only when the stack pointer is then what it was at entry.
// An error's text says why the answer would not be complete.
Result<std::vector<ExitSite>> find_exits(CodeMap& code, const FunctionSymbol& function);

}  // namespace gpuperf
