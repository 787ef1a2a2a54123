#include "daemon/unwind/frame_program.h"

#include <optional>
#include <string>
#include <vector>

#include "daemon/probe/elf/dwarf_cursor.h"

namespace gpuperf {
namespace {

// Compilers nest no two.
constexpr size_t kMaxRemembered = 64;

// DW_CFA_*. The first three hold their operand in the low 6 bits.
enum Instruction : uint8_t {
  kAdvanceInside = 0x40,
  kOffsetInside = 0x80,
  kRestoreInside = 0xc0,
  kNothing = 0x00,
  kSetLocation = 0x01,
  kAdvance1 = 0x02,
  kAdvance2 = 0x03,
  kAdvance4 = 0x04,
  kOffsetExtended = 0x05,
  kRestoreExtended = 0x06,
  kUndefined = 0x07,
  kSameValue = 0x08,
  kRegister = 0x09,
  kRememberState = 0x0a,
  kRestoreState = 0x0b,
  kDefineCfa = 0x0c,
  kDefineCfaRegister = 0x0d,
  kDefineCfaOffset = 0x0e,
  kDefineCfaExpression = 0x0f,
  kExpression = 0x10,
  kOffsetExtendedSigned = 0x11,
  kDefineCfaSigned = 0x12,
  kDefineCfaOffsetSigned = 0x13,
  kValueOffset = 0x14,
  kValueOffsetSigned = 0x15,
  kValueExpression = 0x16,
  kAdvance8 = 0x1d,                // MIPS by name; assemblers write it for any machine
  kArgumentsSize = 0x2e,           // GNU: for exceptions only
  kNegativeOffsetExtended = 0x2f,  // GNU, old
};

// Runs the instructions of a CIE and of its FDE, until they pass the address asked for.
class FrameProgram {
 public:
  FrameProgram(const FrameDescription& frame, uint64_t vaddr) : frame_(frame), vaddr_(vaddr) {}
  Result<FrameRow> run();

 private:
  using RegisterKind = RegisterRule::Kind;

  Status run_entry(const FrameEntry& entry);
  Status step(DwarfCursor& cursor);
  // Of the instructions they know; the others go to the next.
  Status step_row(uint8_t instruction, DwarfCursor& cursor);
  Status step_cfa(uint8_t instruction, DwarfCursor& cursor);
  Status step_register(uint8_t instruction, DwarfCursor& cursor);

  Status move_cfa(std::optional<uint64_t> register_number, std::optional<int64_t> offset_bytes);
  void advance(uint64_t count) { location_ += count * frame_.common.code_alignment; }
  void set(uint64_t register_number, const RegisterRule& rule);
  void restore(uint64_t register_number);
  Status restore_state();
  // Wraps with nonsense: the result is an offset nobody uses.
  int64_t scale(uint64_t count) const {
    return static_cast<int64_t>(count * static_cast<uint64_t>(frame_.common.data_alignment));
  }
  int64_t take_scaled(DwarfCursor& cursor) const { return scale(cursor.take_uleb()); }
  int64_t take_scaled_signed(DwarfCursor& cursor) const {
    return scale(static_cast<uint64_t>(cursor.take_sleb()));
  }

  const FrameDescription& frame_;
  const uint64_t vaddr_;
  uint64_t location_ = 0;
  FrameRow row_;
  FrameRow initial_row_;  // what `restore` restores
  std::vector<FrameRow> remembered_;
};

Result<FrameRow> FrameProgram::run() {
  RETURN_IF_ERROR(run_entry(frame_.common.entry));
  initial_row_ = row_;
  location_ = frame_.begin;
  RETURN_IF_ERROR(run_entry(frame_.entry));
  return row_;
}

Status FrameProgram::run_entry(const FrameEntry& entry) {
  DwarfCursor cursor(std::span(entry.bytes).subspan(entry.program_at),
                     entry.vaddr + entry.program_at);
  while (!cursor.at_end()) {
    RETURN_IF_ERROR(step(cursor));
    if (location_ > vaddr_) return absl::OkStatus();
  }
  if (entry.is_cut) return absl::ResourceExhaustedError("unwind information too long");
  if (!cursor.ok()) return make_damaged_frame("an instruction");
  return absl::OkStatus();
}

Status FrameProgram::step(DwarfCursor& cursor) {
  const uint8_t instruction = cursor.take<uint8_t>();
  const uint8_t operand = instruction & 0x3f;
  switch (instruction & 0xc0) {
    case kAdvanceInside:
      advance(operand);
      return absl::OkStatus();
    case kOffsetInside:
      set(operand, {.kind = RegisterKind::kOffset, .offset_bytes = take_scaled(cursor)});
      return absl::OkStatus();
    case kRestoreInside:
      restore(operand);
      return absl::OkStatus();
    default:
      return step_row(instruction, cursor);
  }
}

Status FrameProgram::step_row(uint8_t instruction, DwarfCursor& cursor) {
  switch (instruction) {
    case kNothing:
      return absl::OkStatus();
    case kSetLocation:
      location_ = cursor.take_encoded(frame_.common.pointers);
      return absl::OkStatus();
    case kAdvance1:
      advance(cursor.take<uint8_t>());
      return absl::OkStatus();
    case kAdvance2:
      advance(cursor.take<uint16_t>());
      return absl::OkStatus();
    case kAdvance4:
      advance(cursor.take<uint32_t>());
      return absl::OkStatus();
    case kAdvance8:
      advance(cursor.take<uint64_t>());
      return absl::OkStatus();
    case kArgumentsSize:
      (void)cursor.take_uleb();
      return absl::OkStatus();
    case kRememberState:
      if (remembered_.size() == kMaxRemembered) {
        return absl::ResourceExhaustedError("unwind information remembers too many states");
      }
      remembered_.push_back(row_);
      return absl::OkStatus();
    case kRestoreState:
      return restore_state();
    default:
      return step_cfa(instruction, cursor);
  }
}

Status FrameProgram::step_cfa(uint8_t instruction, DwarfCursor& cursor) {
  uint64_t register_number = 0;
  switch (instruction) {
    case kDefineCfa:
      register_number = cursor.take_uleb();
      row_.cfa = {.kind = CfaRule::Kind::kRegister};
      return move_cfa(register_number, static_cast<int64_t>(cursor.take_uleb()));
    case kDefineCfaSigned:
      register_number = cursor.take_uleb();
      row_.cfa = {.kind = CfaRule::Kind::kRegister};
      return move_cfa(register_number, take_scaled_signed(cursor));
    case kDefineCfaRegister:
      return move_cfa(cursor.take_uleb(), std::nullopt);
    case kDefineCfaOffset:
      return move_cfa(std::nullopt, static_cast<int64_t>(cursor.take_uleb()));
    case kDefineCfaOffsetSigned:
      return move_cfa(std::nullopt, take_scaled_signed(cursor));
    case kDefineCfaExpression:
      row_.cfa = {.kind = CfaRule::Kind::kExpression,
                  .expression = cursor.take_bytes(cursor.take_uleb())};
      return absl::OkStatus();
    default:
      return step_register(instruction, cursor);
  }
}

Status FrameProgram::step_register(uint8_t instruction, DwarfCursor& cursor) {
  // All that are left name a register first.
  if (instruction > kValueExpression && instruction != kNegativeOffsetExtended) {
    return absl::UnimplementedError("unwind information with an unknown instruction " +
                                    std::to_string(instruction));
  }
  const uint64_t register_number = cursor.take_uleb();
  RegisterRule rule;
  switch (instruction) {
    case kRestoreExtended:
      restore(register_number);
      return absl::OkStatus();
    case kUndefined:
      rule.kind = RegisterKind::kUndefined;
      break;
    case kSameValue:
      rule.kind = RegisterKind::kSameValue;
      break;
    case kOffsetExtended:
      rule = {.kind = RegisterKind::kOffset, .offset_bytes = take_scaled(cursor)};
      break;
    case kOffsetExtendedSigned:
      rule = {.kind = RegisterKind::kOffset, .offset_bytes = take_scaled_signed(cursor)};
      break;
    case kNegativeOffsetExtended:
      rule = {.kind = RegisterKind::kOffset, .offset_bytes = scale(0 - cursor.take_uleb())};
      break;
    case kExpression:
      rule = {.kind = RegisterKind::kExpression,
              .expression = cursor.take_bytes(cursor.take_uleb())};
      break;
    case kRegister:
    case kValueOffset:
    case kValueOffsetSigned:  // of the same length as unsigned
      rule.kind = RegisterKind::kOther;
      (void)cursor.take_uleb();
      break;
    case kValueExpression:
      rule.kind = RegisterKind::kOther;
      (void)cursor.take_bytes(cursor.take_uleb());
      break;
  }
  set(register_number, rule);
  return absl::OkStatus();
}

Status FrameProgram::move_cfa(std::optional<uint64_t> register_number,
                              std::optional<int64_t> offset_bytes) {
  if (row_.cfa.kind != CfaRule::Kind::kRegister) {
    return make_damaged_frame("half a definition of the frame's address");
  }
  if (register_number) row_.cfa.register_number = *register_number;
  if (offset_bytes) row_.cfa.offset_bytes = *offset_bytes;
  return absl::OkStatus();
}

void FrameProgram::set(uint64_t register_number, const RegisterRule& rule) {
  if (register_number == kRegisterBp) row_.bp = rule;
  if (register_number == kRegisterReturnAddress) row_.return_address = rule;
}

void FrameProgram::restore(uint64_t register_number) {
  if (register_number == kRegisterBp) row_.bp = initial_row_.bp;
  if (register_number == kRegisterReturnAddress) {
    row_.return_address = initial_row_.return_address;
  }
}

Status FrameProgram::restore_state() {
  if (remembered_.empty()) return make_damaged_frame("a state restored but never remembered");
  row_ = remembered_.back();
  remembered_.pop_back();
  return absl::OkStatus();
}

}  // namespace

Result<FrameRow> run_frame_program(const FrameDescription& frame, uint64_t vaddr) {
  return FrameProgram(frame, vaddr).run();
}

}  // namespace gpuperf
