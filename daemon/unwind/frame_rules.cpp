#include "daemon/unwind/frame_rules.h"

#include <concepts>
#include <limits>
#include <optional>
#include <span>

#include "daemon/probe/code/frame_entries.h"
#include "daemon/probe/code/frame_search.h"
#include "daemon/probe/elf/dwarf_cursor.h"
#include "daemon/unwind/frame_program.h"

namespace gpuperf {
namespace {

// DW_OP_*.
constexpr uint8_t kDereference = 0x06;
constexpr uint8_t kAnd = 0x1a;
constexpr uint8_t kPlus = 0x22;
constexpr uint8_t kShiftLeft = 0x24;
constexpr uint8_t kGreaterOrEqual = 0x2a;
constexpr uint8_t kLiteral0 = 0x30;       // to kLiteral0 + 31
constexpr uint8_t kRegisterPlus0 = 0x70;  // to kRegisterPlus0 + 31; then a signed offset

// In struct ucontext of x86-64: where the registers of the interrupted code stand.
constexpr int64_t kSignalBpBytes = 120;
constexpr int64_t kSignalSpBytes = 160;
constexpr int64_t kSignalPcBytes = 168;

// The return address stands right below the CFA: calls push it.
constexpr int64_t kReturnAddressBytes = -8;

template <std::signed_integral T>
bool fits(int64_t value) {
  return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
}

// The offset of an expression "register + offset", `dereferenced` or not; nothing of any other.
std::optional<int64_t> match_register_plus(std::span<const std::byte> expression,
                                           uint64_t register_number, bool dereferenced) {
  DwarfCursor cursor(expression, 0);
  if (cursor.take<uint8_t>() != kRegisterPlus0 + register_number) return std::nullopt;
  const int64_t offset_bytes = cursor.take_sleb();
  if (dereferenced && cursor.take<uint8_t>() != kDereference) return std::nullopt;
  if (!cursor.ok() || !cursor.at_end()) return std::nullopt;
  return offset_bytes;
}

// The K of "sp + 8 + ((pc & 15) >= K) * 8", by which linkers describe all of .plt at once: its
// stubs are of 16 bytes, and from byte K on one has pushed a number.
std::optional<int32_t> match_plt(std::span<const std::byte> expression) {
  DwarfCursor cursor(expression, 0);
  const auto takes = [&cursor](uint64_t byte) { return cursor.take<uint8_t>() == byte; };
  const auto takes_register_plus = [&](uint64_t register_number, int64_t offset_bytes) {
    return takes(kRegisterPlus0 + register_number) && cursor.take_sleb() == offset_bytes;
  };
  if (!takes_register_plus(kRegisterSp, 8) || !takes_register_plus(kRegisterReturnAddress, 0) ||
      !takes(kLiteral0 + 15) || !takes(kAnd)) {
    return std::nullopt;
  }
  const int32_t push_end = cursor.take<uint8_t>() - kLiteral0;
  if (push_end < 0 || push_end > 15) return std::nullopt;
  if (!takes(kGreaterOrEqual) || !takes(kLiteral0 + 3) || !takes(kShiftLeft) || !takes(kPlus) ||
      !cursor.ok() || !cursor.at_end()) {
    return std::nullopt;
  }
  return push_end;
}

bool stands_in_ucontext(const RegisterRule& rule, int64_t offset_bytes) {
  return rule.kind == RegisterRule::Kind::kExpression &&
         match_register_plus(rule.expression, kRegisterSp, false) == offset_bytes;
}

// As C libraries describe their signal trampoline.
bool is_signal_trampoline(const FrameRow& row) {
  return row.cfa.kind == CfaRule::Kind::kExpression &&
         match_register_plus(row.cfa.expression, kRegisterSp, true) == kSignalSpBytes &&
         stands_in_ucontext(row.return_address, kSignalPcBytes) &&
         stands_in_ucontext(row.bp, kSignalBpBytes);
}

// Both answer whether the rule can say it.
bool put_cfa(const CfaRule& cfa, gpuperf_unwind_rule& rule) {
  int64_t offset_bytes = cfa.offset_bytes;
  if (cfa.kind == CfaRule::Kind::kRegister && cfa.register_number == kRegisterSp) {
    rule.kind = GPUPERF_UNWIND_SP;
  } else if (cfa.kind == CfaRule::Kind::kRegister && cfa.register_number == kRegisterBp) {
    rule.kind = GPUPERF_UNWIND_BP;
  } else if (const auto at_bp = match_register_plus(cfa.expression, kRegisterBp, true)) {
    rule.kind = GPUPERF_UNWIND_BP_MEMORY;
    offset_bytes = *at_bp;
  } else if (const auto push_end = match_plt(cfa.expression)) {
    rule.kind = GPUPERF_UNWIND_PLT;
    offset_bytes = *push_end;
  } else {
    return false;
  }
  rule.cfa_offset_bytes = static_cast<int32_t>(offset_bytes);
  return fits<int32_t>(offset_bytes);
}

bool put_bp(const RegisterRule& bp, gpuperf_unwind_rule& rule) {
  int64_t offset_bytes = bp.offset_bytes;
  switch (bp.kind) {
    case RegisterRule::Kind::kUnspecified:
    case RegisterRule::Kind::kSameValue:
      return true;
    case RegisterRule::Kind::kOffset:
      // At CFA + 0 it would be the caller's own memory; and 0 says something else.
      if (offset_bytes == 0) return false;
      rule.bp_at = GPUPERF_UNWIND_BP_AT_CFA;
      break;
    case RegisterRule::Kind::kExpression: {
      const auto at_bp = match_register_plus(bp.expression, kRegisterBp, false);
      if (!at_bp) return false;
      offset_bytes = *at_bp;
      rule.bp_at = GPUPERF_UNWIND_BP_AT_BP;
      break;
    }
    // Callers may find their frame by bp: without it the walk would go astray, not end.
    case RegisterRule::Kind::kUndefined:
    case RegisterRule::Kind::kOther:
      return false;
  }
  rule.bp_offset_bytes = static_cast<int16_t>(offset_bytes);
  return fits<int16_t>(offset_bytes);
}

gpuperf_unwind_rule make_rule(const FrameDescription& frame, const FrameRow& row) {
  constexpr gpuperf_unwind_rule kUnknown = {.kind = GPUPERF_UNWIND_UNKNOWN};
  if (frame.common.return_address_register != kRegisterReturnAddress) return kUnknown;
  if (row.return_address.kind == RegisterRule::Kind::kUndefined) {
    return {.kind = GPUPERF_UNWIND_END};
  }
  // Other rules than GPUPERF_UNWIND_SIGNAL would take the interrupted address for a return address.
  if (frame.common.is_signal_frame) {
    return is_signal_trampoline(row) ? gpuperf_unwind_rule{.kind = GPUPERF_UNWIND_SIGNAL}
                                     : kUnknown;
  }
  if (row.return_address.kind != RegisterRule::Kind::kOffset ||
      row.return_address.offset_bytes != kReturnAddressBytes) {
    return kUnknown;
  }
  gpuperf_unwind_rule rule{};
  return put_cfa(row.cfa, rule) && put_bp(row.bp, rule) ? rule : kUnknown;
}

Result<std::optional<uint64_t>> find_entry(const CodeFile& file, uint64_t vaddr) {
  Result<std::optional<uint64_t>> entry = find_entry_by_table(file, vaddr);
  if (absl::IsNotFound(entry.status()) || absl::IsUnimplemented(entry.status())) {
    return find_entry_by_scan(file, vaddr);
  }
  return entry;
}

}  // namespace

Result<gpuperf_unwind_rule> find_unwind_rule(const CodeFile& file, uint64_t vaddr) {
  ASSIGN_OR_RETURN(const std::optional<uint64_t> entry, find_entry(file, vaddr));
  if (!entry) return kGuessRule;
  ASSIGN_OR_RETURN(const FrameDescription frame, read_description(file, *entry));
  if (!frame.covers(vaddr)) return kGuessRule;
  ASSIGN_OR_RETURN(const FrameRow row, run_frame_program(frame, vaddr));
  return make_rule(frame, row);
}

}  // namespace gpuperf
