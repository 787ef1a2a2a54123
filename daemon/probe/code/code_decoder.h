#pragma once

// One x86-64 instruction, reduced to what placing a probe needs to know. The only file that knows
// the decoder (Zydis).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gpuperf {

// Where execution goes after an instruction.
enum class Flow : uint8_t {
  kNext,
  kCall,             // and comes back, or never
  kJump,             // to `target`
  kConditionalJump,  // to `target` when `condition` holds, else to the next
  kCountingJump,     // likewise, on rcx or a transaction: loop, jrcxz, xbegin
  kIndirectJump,     // see `form`
  kReturn,
  kNowhere,  // traps: ud2, hlt, int3
};

// What a table of jumps, or the place of a field, is recognised by. Registers are numbered as the
// machine does: 0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, then r8 to r15; -1 = none.
enum class Form : uint8_t {
  kOther,
  kAddress,       // lea value(%rip), reg: `value` is the address
  kOffset,        // lea value(base), reg
  kSetBits,       // or $immediate, value(base), of memory
  kTableLoad,     // movslq value(base,index,4), reg
  kLoad,          // mov value(base), reg, 8 bytes; without a base from address `value`
  kAdd,           // add base, reg
  kLoadPart,      // mov or movzx of fewer than 8 bytes of value(base,index,scale) to reg
  kMove,          // any mov between registers: base to reg
  kCompare,       // cmp $immediate, reg; of memory: value(base,index,scale), without reg
  kJumpRegister,  // jmp *reg
  kJumpMemory,    // jmp *value(base,index,scale); without a base through address `value`
};

struct Instruction {
  uint64_t vaddr = 0;
  uint8_t length_bytes = 0;
  Flow flow = Flow::kNext;
  uint8_t condition = 0;  // condition code, Intel SDM "EFLAGS condition codes"
  uint64_t target = 0;    // vaddr; of direct jumps
  // Every kernel from 5.15 on emulates it within the trap: push, direct jumps and calls, nop.
  bool emulated = false;
  bool refused = false;  // no kernel lets it be probed
  // Changes nothing that an entry probe reads: no memory, no stack, frame or argument register.
  bool transparent = false;
  bool is_endbr64 = false;
  bool is_padding = false;  // a nop of any length, or int3
  uint16_t written = 0;     // general registers that it may change, bit per number
  Form form = Form::kOther;
  int8_t reg = -1;
  int8_t base = -1;
  int8_t index = -1;
  uint8_t scale = 0;
  int64_t value = 0;
  int64_t immediate = 0;
};

// The longest instruction of the architecture.
constexpr size_t kMaxInstructionBytes = 15;

// The instruction that `code` begins with, at address `vaddr`; nothing where it holds none.
std::optional<Instruction> decode_instruction(std::span<const std::byte> code, uint64_t vaddr);

}  // namespace gpuperf
