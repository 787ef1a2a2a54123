#include "daemon/probe/code/code_switch.h"

#include <algorithm>
#include <span>
#include <utility>

namespace gpuperf {
namespace {

// Beyond it a number is no count of cases but something else compared.
constexpr int64_t kMaxCases = 16'384;
constexpr uint8_t kAbove = 7;         // condition code of ja
constexpr uint8_t kAboveOrEqual = 3;  // of jae

bool writes(const Instruction& instruction, int8_t reg) {
  return (instruction.written >> reg & 1) != 0;
}

// Index of the last instruction before `end` that writes `reg`, through straight code only: calls
// and conditional jumps come back or go away, anything else that jumps ends the search.
std::optional<size_t> find_writer(std::span<const Instruction> code, size_t end, int8_t reg) {
  for (size_t i = end; i-- > 0;) {
    const Flow flow = code[i].flow;
    if (flow != Flow::kNext && flow != Flow::kCall && flow != Flow::kConditionalJump) break;
    if (writes(code[i], reg)) return i;
  }
  return std::nullopt;
}

struct SwitchBound {
  size_t compare = 0;  // index of the instruction
  uint64_t count = 0;
};

bool same_memory(const Instruction& one, const Instruction& other) {
  return one.base == other.base && one.index == other.index && one.scale == other.scale &&
         one.value == other.value;
}

// The cases that `compare` and the conditional jump after it let through; 0 = some other check.
uint64_t count_cases(const Instruction& compare, const Instruction* leaves) {
  if (leaves == nullptr || compare.immediate < 0 || compare.immediate > kMaxCases) return 0;
  const auto limit = static_cast<uint64_t>(compare.immediate);
  if (leaves->condition == kAbove) return limit + 1;
  return leaves->condition == kAboveOrEqual ? limit : 0;
}

// The check that keeps `index` below a count on the straight way to `end`. The index may be moved
// between the two, or be loaded after its memory was checked.
std::optional<SwitchBound> find_bound(std::span<const Instruction> code, size_t end, int8_t index) {
  const Instruction* leaves = nullptr;  // the conditional jump nearest to the compare
  const Instruction* load = nullptr;    // where the index came from memory
  for (size_t i = end; i-- > 0;) {
    const Instruction& instruction = code[i];
    const bool is_check = instruction.form == Form::kCompare &&
                          (load != nullptr ? instruction.reg < 0 && same_memory(instruction, *load)
                                           : instruction.reg == index);
    if (is_check) {
      const uint64_t count = count_cases(instruction, leaves);
      if (count == 0) return std::nullopt;
      return SwitchBound{.compare = i, .count = count};
    }
    if (instruction.flow == Flow::kConditionalJump) {
      leaves = &instruction;
    } else if (instruction.flow != Flow::kNext) {
      return std::nullopt;
    }
    if (load != nullptr) {
      // What addresses the memory must not have changed in between.
      if ((load->base >= 0 && writes(instruction, load->base)) ||
          (load->index >= 0 && writes(instruction, load->index))) {
        return std::nullopt;
      }
    } else if (writes(instruction, index)) {
      if (instruction.form == Form::kLoadPart || instruction.form == Form::kLoad) {
        load = &instruction;
      } else if (instruction.form == Form::kMove) {
        index = instruction.base;
      } else {
        return std::nullopt;
      }
    }
  }
  return std::nullopt;
}

// The load from the table whose value, with the table's address added, `jump` goes to.
std::optional<size_t> find_table_load(std::span<const Instruction> code, size_t jump) {
  const auto add = find_writer(code, jump, code[jump].reg);
  if (!add || code[*add].form != Form::kAdd) return std::nullopt;
  // Either summand may be the loaded one; the other is what it was loaded by.
  for (const auto& [offset, base] :
       {std::pair(code[*add].reg, code[*add].base), std::pair(code[*add].base, code[*add].reg)}) {
    const auto load = find_writer(code, *add, offset);
    if (!load || code[*load].form != Form::kTableLoad || code[*load].value != 0) continue;
    if (code[*load].base != base || offset == base) continue;
    const auto between = code.subspan(*load, *add - *load);
    const auto writes_base = [base = base](const auto& i) { return writes(i, base); };
    if (std::ranges::none_of(between, writes_base)) return load;
  }
  return std::nullopt;
}

}  // namespace

std::optional<JumpTable> find_jump_table(CodeReach& reach, CodePlace jump) {
  const std::span<const Instruction> code = reach.part(jump.part);
  const Instruction& instruction = code[jump.index];
  JumpTable table{.straight_end = instruction.vaddr};
  size_t last = jump.index;  // what the index is used by
  if (instruction.form == Form::kJumpRegister) {
    const auto load = find_table_load(code, jump.index);
    if (!load) return std::nullopt;
    const auto address = reach.find_address({.part = jump.part, .index = *load}, code[*load].base);
    if (!address) return std::nullopt;
    table.vaddr = *address;
    table.is_relative = true;
    last = *load;
  } else {
    const bool is_table = instruction.form == Form::kJumpMemory && instruction.base < 0 &&
                          instruction.index >= 0 && instruction.scale == 8;
    if (!is_table) return std::nullopt;
    table.vaddr = static_cast<uint64_t>(instruction.value);
  }
  const auto bound = find_bound(code, last, code[last].index);
  if (!bound) return std::nullopt;
  table.count = bound->count;
  table.straight_begin = code[bound->compare].vaddr;
  return table;
}

Result<std::vector<uint64_t>> read_jump_table(const CodeFile& file, const JumpTable& table) {
  std::vector<uint64_t> targets(table.count);
  if (!table.is_relative) {
    RETURN_IF_ERROR(file.read(table.vaddr, std::as_writable_bytes(std::span(targets))));
    return targets;
  }
  std::vector<int32_t> distances(table.count);
  RETURN_IF_ERROR(file.read(table.vaddr, std::as_writable_bytes(std::span(distances))));
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i] = table.vaddr + static_cast<uint64_t>(int64_t{distances[i]});
  }
  return targets;
}

}  // namespace gpuperf
