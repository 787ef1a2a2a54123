#include "daemon/probe/code/placement.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "daemon/probe/code/code_body.h"
#include "daemon/probe/code/code_decoder.h"

namespace gpuperf {
namespace {

// How far behind its beginning a function may be probed. The longest way to a cheap instruction in
// the libraries of docs/decisions/0005 is 28 bytes.
constexpr uint64_t kMaxSlideBytes = 64;

HitCost get_cost(bool emulated) { return emulated ? HitCost::kEmulated : HitCost::kStepped; }

// A function's first instructions: those that a probe may stand behind, and the one after them.
struct Beginning {
  std::vector<Instruction> code;  // never empty
  bool ends_emulated = false;     // the last of `code` is worth probing
  bool only_endbr64 = false;      // nothing but endbr64 comes before it
};

Result<Beginning> read_beginning(const CodeMap& code, uint64_t vaddr, uint64_t size_bytes) {
  const uint64_t wanted = kMaxSlideBytes + kMaxInstructionBytes;
  ASSIGN_OR_RETURN(
      const std::vector<std::byte> bytes,
      code.file().read_up_to(vaddr, size_bytes == 0 ? wanted : std::min(wanted, size_bytes)));
  Beginning begin;
  std::span<const std::byte> rest(bytes);
  for (uint64_t at = vaddr; at - vaddr <= kMaxSlideBytes; at += begin.code.back().length_bytes) {
    const auto instruction = decode_instruction(rest, at);
    if (!instruction) break;
    begin.code.push_back(*instruction);
    begin.ends_emulated = instruction->emulated;
    if (instruction->emulated || !instruction->transparent) break;
    rest = rest.subspan(instruction->length_bytes);
  }
  if (begin.code.empty()) {
    return absl::FailedPreconditionError("no instruction that is known where it begins");
  }
  begin.only_endbr64 = begin.code.size() == 2 && begin.code.front().is_endbr64;
  return begin;
}

// Whether every way through the function to the last instruction of `begin` comes from its
// beginning, once per call.
bool is_reached_once(CodeMap& code, const Beginning& begin, uint64_t size_bytes) {
  const uint64_t first = begin.code.front().vaddr;
  const Instruction& last = begin.code.back();
  const Result<CodeBody> body = walk_body(code, first, size_bytes);
  if (!body.ok()) {
    // No compiler puts a label between endbr64 and the first push, which belongs to the prologue;
    // what jumps may be a loop's head.
    return begin.only_endbr64 && last.flow == Flow::kNext;
  }
  const auto target = std::ranges::upper_bound(body->targets, first);
  return target == body->targets.end() || *target > last.vaddr;
}

// Where the function goes at once, if it is nothing but a jump out of itself.
Result<std::optional<uint64_t>> find_thunk_target(CodeMap& code, const Beginning& begin,
                                                  uint64_t size_bytes) {
  const uint64_t first = begin.code.front().vaddr;
  const Instruction& jump = begin.code.back();
  if (begin.code.size() > 1 && !begin.only_endbr64) return std::nullopt;
  if (jump.form == Form::kJumpMemory && jump.base < 0 && jump.index < 0) {
    return code.find_slot_target(static_cast<uint64_t>(jump.value));
  }
  if (jump.flow != Flow::kJump) return std::nullopt;
  if (code.is_plt(jump.target)) return code.find_plt_target(jump.target);
  bool leaves = size_bytes != 0 && jump.target - first >= size_bytes;
  if (size_bytes == 0) {
    ASSIGN_OR_RETURN(leaves, code.begins_function(jump.target));
  }
  if (!leaves || !code.file().is_code(jump.target)) return std::nullopt;
  return jump.target;
}

uint64_t get_offset(const CodeMap& code, uint64_t vaddr) {
  // Every address that was read lies in the file.
  return code.file().find_offset(vaddr).value_or(0);
}

Result<uint64_t> find_vaddr(const CodeMap& code, const FunctionSymbol& function) {
  const auto vaddr = code.file().find_vaddr(function.file_offset_bytes);
  if (!vaddr) return absl::OutOfRangeError("its symbol lies outside the code of the file");
  return *vaddr;
}

}  // namespace

Result<Placement> place_entry(CodeMap& code, const FunctionSymbol& function,
                              std::span<const ExitSite> exits) {
  ASSIGN_OR_RETURN(const uint64_t vaddr, find_vaddr(code, function));
  ASSIGN_OR_RETURN(Beginning begin, read_beginning(code, vaddr, function.size_bytes));
  Placement placement{.offset_bytes = function.file_offset_bytes};
  const auto target = find_thunk_target(code, begin, function.size_bytes);
  // An unreadable table of relocations hides a thunk, no more.
  if (target.ok() && *target) placement.thunk_target_offset_bytes = get_offset(code, **target);

  const Instruction& first = begin.code.front();
  const Instruction& last = begin.code.back();
  placement.hit_cost = get_cost(first.emulated);
  if (begin.code.size() > 1 && begin.ends_emulated) {
    const uint64_t offset_bytes = function.file_offset_bytes + (last.vaddr - vaddr);
    const bool is_exit =
        std::ranges::find(exits, offset_bytes, &ExitSite::offset_bytes) != exits.end();
    if (!is_exit && is_reached_once(code, begin, function.size_bytes)) {
      placement.offset_bytes = offset_bytes;
      placement.hit_cost = HitCost::kEmulated;
      return placement;
    }
  }
  if (first.refused) {
    return absl::FailedPreconditionError(
        "the kernel probes no such instruction as it begins with, and behind it is none");
  }
  return placement;
}

Result<std::vector<ExitSite>> find_exits(CodeMap& code, const FunctionSymbol& function) {
  ASSIGN_OR_RETURN(const uint64_t vaddr, find_vaddr(code, function));
  ASSIGN_OR_RETURN(const CodeBody body, walk_body(code, vaddr, function.size_bytes));
  std::vector<ExitSite> exits;
  exits.reserve(body.exits.size());
  for (const BodyExit& exit : body.exits) {
    if (exit.vaddr == vaddr) return absl::UnimplementedError("leaves with its first instruction");
    if (exit.refused) {
      return absl::UnimplementedError("leaves by an instruction that the kernel does not probe");
    }
    exits.push_back({.offset_bytes = get_offset(code, exit.vaddr),
                     .condition = exit.condition,
                     .hit_cost = get_cost(exit.emulated)});
  }
  return exits;
}

}  // namespace gpuperf
