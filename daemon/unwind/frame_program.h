#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/base/result.h"
#include "daemon/probe/code/frame_entries.h"

namespace gpuperf {

// Where a frame's CFA is: the value of sp before the call that made the frame.
struct CfaRule {
  enum class Kind { kUnspecified, kRegister, kExpression };
  Kind kind = Kind::kUnspecified;
  uint64_t register_number = 0;  // CFA = this register + offset_bytes
  int64_t offset_bytes = 0;
  std::span<const std::byte> expression;  // CFA = its value
};

// Where the value is that a register had in the caller.
struct RegisterRule {
  enum class Kind {
    kUnspecified,
    kUndefined,
    kSameValue,   // still in the register
    kOffset,      // in memory, at CFA + offset_bytes
    kExpression,  // in memory, at the expression's value
    kOther        // not in memory
  };
  Kind kind = Kind::kUnspecified;
  int64_t offset_bytes = 0;
  std::span<const std::byte> expression;
};

// What a walk needs of the table of DWARF 5, 6.4.1, for one address.
struct FrameRow {
  CfaRule cfa;
  RegisterRule bp;
  RegisterRule return_address;
};

// Numbers of registers: System V ABI for x86-64, 3.6.2.
inline constexpr uint64_t kRegisterBp = 6;
inline constexpr uint64_t kRegisterSp = 7;
inline constexpr uint64_t kRegisterReturnAddress = 16;

// The row for `vaddr`, which `frame` covers; its expressions point into `frame`.
// Errors: DataLoss = damaged; Unimplemented = an instruction not known here; ResourceExhausted =
// beyond FrameEntry::kMaxBytes, or states remembered within each other beyond a bound.
Result<FrameRow> run_frame_program(const FrameDescription& frame, uint64_t vaddr);

}  // namespace gpuperf
