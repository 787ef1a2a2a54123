#include "daemon/probe/code/code_decoder.h"

#include <Zydis/Zydis.h>

#include <algorithm>
#include <array>
#include <initializer_list>

namespace gpuperf {
namespace {

// What Zydis says of one instruction.
struct Decoded {
  ZydisDecodedInstruction head{};
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands{};

  std::span<const ZydisDecodedOperand> all() const { return {operands.data(), head.operand_count}; }
  bool has_prefix(std::initializer_list<uint8_t> wanted) const {
    for (uint8_t i = 0; i < head.raw.prefix_count; ++i) {
      if (std::ranges::find(wanted, head.raw.prefixes[i].value) != wanted.end()) return true;
    }
    return false;
  }
  bool is_plain() const {  // opcode of one byte
    return head.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY &&
           head.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT;
  }
  bool is_two_byte() const {
    return head.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY &&
           head.opcode_map == ZYDIS_OPCODE_MAP_0F;
  }
};

ZydisDecoder make_decoder() {
  ZydisDecoder decoder;
  (void)ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64,
                         ZYDIS_STACK_WIDTH_64);  // fails only for modes that do not exist
  return decoder;
}

// Number of a general register of any width, -1 for all others.
int8_t get_number(ZydisRegister reg) {
  const ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  if (ZydisRegisterGetClass(whole) != ZYDIS_REGCLASS_GPR64) return -1;
  return ZydisRegisterGetId(whole);
}

bool is_register(const ZydisDecodedOperand& operand) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && get_number(operand.reg.value) >= 0;
}

bool is_memory(const ZydisDecodedOperand& operand) {
  return operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.type == ZYDIS_MEMOP_TYPE_MEM;
}

uint16_t find_written(const Decoded& code) {
  uint16_t written = 0;
  for (const ZydisDecodedOperand& operand : code.all()) {
    if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0 || !is_register(operand)) continue;
    written |= static_cast<uint16_t>(1u << get_number(operand.reg.value));
  }
  return written;
}

bool writes_memory(const Decoded& code) {
  return std::ranges::any_of(code.all(), [](const ZydisDecodedOperand& operand) {
    return operand.type == ZYDIS_OPERAND_TYPE_MEMORY &&
           (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
  });
}

Flow find_flow(const Decoded& code) {
  switch (code.head.meta.category) {
    case ZYDIS_CATEGORY_CALL:
      return Flow::kCall;
    case ZYDIS_CATEGORY_RET:
      return Flow::kReturn;
    case ZYDIS_CATEGORY_UNCOND_BR:
      return code.operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? Flow::kJump
                                                                   : Flow::kIndirectJump;
    case ZYDIS_CATEGORY_COND_BR: {
      const bool on_flags = (code.is_plain() && (code.head.opcode & 0xf0) == 0x70) ||
                            (code.is_two_byte() && (code.head.opcode & 0xf0) == 0x80);
      return on_flags ? Flow::kConditionalJump : Flow::kCountingJump;
    }
    default:
      break;
  }
  switch (code.head.mnemonic) {
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_HLT:
    case ZYDIS_MNEMONIC_INT3:
      return Flow::kNowhere;
    default:
      return Flow::kNext;
  }
}

// What arch/x86/kernel/uprobes.c of Linux refuses, 5.15 to 7.0: lock and segment prefixes, loads of
// ss, and opcodes that trap, do I/O or do not exist. It takes the byte behind a VEX prefix for an
// opcode of one byte, so vmovdqu (6f) looks like outs to it.
bool is_refused(const Decoded& code) {
  if (code.has_prefix({0x26, 0x2e, 0x36, 0x3e, 0xf0})) return true;
  if (code.head.encoding == ZYDIS_INSTRUCTION_ENCODING_XOP) return true;  // not decoded before 6.18
  if (code.head.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY && !code.is_plain()) return false;
  if (code.is_plain() && code.head.opcode == 0x8e && code.head.raw.modrm.reg == 2) return true;
  static constexpr uint8_t kRefused[] = {
      0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0x62,
      0x6c, 0x6d, 0x6e, 0x6f, 0x82, 0x9a, 0xcc, 0xcd, 0xce, 0xcf, 0xd4, 0xd5, 0xd6, 0xe4,
      0xe5, 0xe6, 0xe7, 0xea, 0xec, 0xed, 0xee, 0xef, 0xf1, 0xf4, 0xfa, 0xfb};
  return std::ranges::find(kRefused, code.head.opcode) != std::end(kRefused);
}

// The same file: branch_setup_xol_ops and push_setup_xol_ops. It also emulates a nop with prefixes,
// but not every kernel every one of them.
bool is_emulated(const Decoded& code) {
  const uint8_t opcode = code.head.opcode;
  if (is_refused(code) || code.has_prefix({0x66})) return false;
  if (code.is_two_byte()) return (opcode & 0xf0) == 0x80;
  if (!code.is_plain()) return false;
  if (opcode == 0x90) return code.head.length == 1;
  if (opcode >= 0x50 && opcode <= 0x57) {
    return code.head.length == 1 || (code.head.length == 2 && code.has_prefix({0x41}));
  }
  return (opcode & 0xf0) == 0x70 || opcode == 0xe8 || opcode == 0xe9 || opcode == 0xeb;
}

// Kinds of instruction that compute or load and do nothing else. A list of what may be, so that
// what it forgets costs coverage only.
bool only_computes(ZydisInstructionCategory category) {
  static constexpr ZydisInstructionCategory kComputing[] = {
      ZYDIS_CATEGORY_AVX,        ZYDIS_CATEGORY_AVX2,     ZYDIS_CATEGORY_BINARY,
      ZYDIS_CATEGORY_BITBYTE,    ZYDIS_CATEGORY_BMI1,     ZYDIS_CATEGORY_BMI2,
      ZYDIS_CATEGORY_BROADCAST,  ZYDIS_CATEGORY_CET,      ZYDIS_CATEGORY_CMOV,
      ZYDIS_CATEGORY_CONVERT,    ZYDIS_CATEGORY_DATAXFER, ZYDIS_CATEGORY_LOGICAL,
      ZYDIS_CATEGORY_LOGICAL_FP, ZYDIS_CATEGORY_NOP,      ZYDIS_CATEGORY_PREFETCH,
      ZYDIS_CATEGORY_ROTATE,     ZYDIS_CATEGORY_SETCC,    ZYDIS_CATEGORY_SHIFT,
      ZYDIS_CATEGORY_SSE,        ZYDIS_CATEGORY_WIDENOP};
  return std::ranges::find(kComputing, category) != std::end(kComputing);
}

// rsp, rbp and the integer arguments rdi, rsi, rdx, rcx, r8, r9.
constexpr uint16_t kReadByProbes =
    1u << 4 | 1u << 5 | 1u << 7 | 1u << 6 | 1u << 2 | 1u << 1 | 1u << 8 | 1u << 9;

bool is_transparent(const Decoded& code, uint16_t written) {
  if ((written & kReadByProbes) != 0 || writes_memory(code)) return false;
  return only_computes(code.head.meta.category) || code.head.mnemonic == ZYDIS_MNEMONIC_LEA;
}

// Base, index and displacement of a memory operand; false when it is of no kind we follow.
bool take_address(const ZydisDecodedOperand& operand, Instruction& out) {
  const ZydisDecodedOperandMem& mem = operand.mem;
  const bool flat = mem.segment != ZYDIS_REGISTER_FS && mem.segment != ZYDIS_REGISTER_GS;
  if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY || !flat) return false;
  out.value = mem.disp.has_displacement ? mem.disp.value : 0;
  out.index = mem.index == ZYDIS_REGISTER_NONE ? int8_t{-1} : get_number(mem.index);
  out.scale = mem.scale;
  if (mem.base == ZYDIS_REGISTER_RIP) {
    out.value =
        static_cast<int64_t>(out.vaddr + out.length_bytes + static_cast<uint64_t>(out.value));
    return true;
  }
  out.base = mem.base == ZYDIS_REGISTER_NONE ? int8_t{-1} : get_number(mem.base);
  return mem.base == ZYDIS_REGISTER_NONE || out.base >= 0;
}

void take_jump_form(const Decoded& code, Instruction& out) {
  const ZydisDecodedOperand& to = code.operands[0];
  if (is_register(to)) {
    out.form = Form::kJumpRegister;
    out.reg = get_number(to.reg.value);
  } else if (code.head.meta.branch_type != ZYDIS_BRANCH_TYPE_FAR && take_address(to, out)) {
    out.form = Form::kJumpMemory;
  }
}

void take_compare_form(const Decoded& code, Instruction& out) {
  if (code.operands[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE) return;
  Instruction taken = out;
  taken.form = Form::kCompare;
  taken.immediate = code.operands[1].imm.value.s;
  if (is_register(code.operands[0])) {
    taken.reg = get_number(code.operands[0].reg.value);
  } else if (!take_address(code.operands[0], taken)) {
    return;
  }
  out = taken;
}

void take_set_bits_form(const Decoded& code, Instruction& out) {
  if (code.operands[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE) return;
  Instruction taken = out;
  if (!take_address(code.operands[0], taken) || taken.base < 0 || taken.index >= 0) return;
  taken.form = Form::kSetBits;
  taken.immediate = code.operands[1].imm.value.s;
  out = taken;
}

Form find_load_form(const Decoded& code, bool whole, const Instruction& address) {
  if (code.head.mnemonic == ZYDIS_MNEMONIC_MOVSXD) {
    const bool is_table = whole && address.index >= 0 && address.scale == 4 && address.base >= 0;
    return is_table ? Form::kTableLoad : Form::kOther;
  }
  if (!whole || code.head.mnemonic == ZYDIS_MNEMONIC_MOVZX) return Form::kLoadPart;
  return address.index < 0 ? Form::kLoad : Form::kOther;
}

// Forms with a register as their destination.
void take_register_form(const Decoded& code, Instruction& out) {
  const ZydisDecodedOperand& to = code.operands[0];
  const ZydisDecodedOperand& from = code.operands[1];
  if (code.head.operand_count_visible != 2 || !is_register(to)) return;
  Instruction taken = out;
  taken.reg = get_number(to.reg.value);
  const bool whole = to.size == 64;
  switch (code.head.mnemonic) {
    case ZYDIS_MNEMONIC_LEA:
      if (!whole || !take_address(from, taken) || taken.index >= 0) return;
      if (from.mem.base != ZYDIS_REGISTER_RIP && taken.base < 0) return;
      taken.form = taken.base < 0 ? Form::kAddress : Form::kOffset;
      break;
    case ZYDIS_MNEMONIC_ADD:
      if (!whole || !is_register(from)) return;
      taken.form = Form::kAdd;
      taken.base = get_number(from.reg.value);
      break;
    case ZYDIS_MNEMONIC_MOV:
    case ZYDIS_MNEMONIC_MOVZX:
    case ZYDIS_MNEMONIC_MOVSXD:
      if (is_register(from)) {
        taken.form = Form::kMove;
        taken.base = get_number(from.reg.value);
      } else {
        if (!is_memory(from) || !take_address(from, taken)) return;
        taken.form = find_load_form(code, whole, taken);
      }
      break;
    default:
      return;
  }
  out = taken;
}

void take_form(const Decoded& code, Instruction& out) {
  if (out.flow == Flow::kIndirectJump) {
    take_jump_form(code, out);
  } else if (code.head.mnemonic == ZYDIS_MNEMONIC_CMP) {
    take_compare_form(code, out);
  } else if (code.head.mnemonic == ZYDIS_MNEMONIC_OR && is_memory(code.operands[0])) {
    take_set_bits_form(code, out);
  } else {
    take_register_form(code, out);
  }
}

}  // namespace

std::optional<Instruction> decode_instruction(std::span<const std::byte> code, uint64_t vaddr) {
  static const ZydisDecoder decoder = make_decoder();
  Decoded decoded;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code.data(), code.size(), &decoded.head,
                                           decoded.operands.data()))) {
    return std::nullopt;
  }
  Instruction out{.vaddr = vaddr, .length_bytes = decoded.head.length};
  out.flow = find_flow(decoded);
  if (out.flow == Flow::kConditionalJump) out.condition = decoded.head.opcode & 0x0f;
  if (out.flow == Flow::kJump || out.flow == Flow::kConditionalJump ||
      out.flow == Flow::kCountingJump) {
    out.target = vaddr + out.length_bytes + decoded.operands[0].imm.value.u;
  }
  out.written = find_written(decoded);
  // rax, rcx, rdx, rsi, rdi and r8 to r11 are the callee's to change.
  if (out.flow == Flow::kCall) out.written |= 0x0fc7;
  out.refused = is_refused(decoded);
  out.emulated = is_emulated(decoded);
  out.is_endbr64 = decoded.head.mnemonic == ZYDIS_MNEMONIC_ENDBR64;
  out.is_padding = decoded.head.meta.category == ZYDIS_CATEGORY_NOP ||
                   (decoded.head.meta.category == ZYDIS_CATEGORY_WIDENOP && !out.is_endbr64) ||
                   decoded.head.mnemonic == ZYDIS_MNEMONIC_INT3;
  out.transparent = out.flow == Flow::kNext && is_transparent(decoded, out.written);
  take_form(decoded, out);
  return out;
}

}  // namespace gpuperf
