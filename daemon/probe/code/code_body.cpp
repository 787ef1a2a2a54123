#include "daemon/probe/code/code_body.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bpf/records.h"
#include "daemon/probe/code/code_decoder.h"
#include "daemon/probe/code/code_reach.h"
#include "daemon/probe/code/code_switch.h"
#include "daemon/probe/code/code_unwind.h"

namespace gpuperf {
namespace {

// Decodes part after part until no jump leads anywhere new.
class BodyWalker {
 public:
  BodyWalker(CodeMap& code, uint64_t vaddr, uint64_t size_bytes)
      : code_(code), begin_(vaddr), end_(vaddr + size_bytes) {}

  Result<CodeBody> walk();

 private:
  // A jump whose target has still to be placed.
  struct Jump {
    uint64_t target = 0;
    const Instruction* from =
        nullptr;  // null = no instruction: a table or an exception leads there
  };
  // Where an indirect jump goes: by a table, or else out of the function.
  struct Destination {
    std::optional<JumpTable> table;
    bool operator==(const Destination&) const = default;
  };
  struct Part {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  Status add_part(uint64_t begin, uint64_t end);
  Result<std::vector<Instruction>> decode(uint64_t begin, uint64_t end) const;
  Status take_jumps(size_t part);
  Status take_landing_pads(const Part& part);
  Status settle_jump(const Jump& jump);
  Status settle_indirect_jumps();
  Result<Destination> judge(CodeReach& reach, CodePlace place) const;
  Status take_destination(CodePlace place, const Destination& destination);
  Status check_destinations() const;
  CodeReach make_reach() const;
  Status follow(uint64_t target);
  Status check_targets();
  bool is_inside(uint64_t vaddr) const;
  void add_exit(const Instruction& instruction, uint8_t condition);
  std::string describe(uint64_t vaddr) const;

  CodeMap& code_;
  const uint64_t begin_;
  const uint64_t end_;
  uint64_t bytes_ = 0;
  std::vector<Part> parts_;                        // the function itself first
  std::vector<std::vector<Instruction>> decoded_;  // of each part; reserved, so it never moves
  std::vector<Jump> jumps_;
  std::vector<CodePlace> indirect_;  // jumps not judged yet
  std::vector<std::pair<CodePlace, Destination>> judged_;
  std::vector<CodeEdge> table_edges_;
  std::vector<uint64_t> landing_pads_;
  CodeBody body_;
};

std::string BodyWalker::describe(uint64_t vaddr) const {
  char text[40];
  if (vaddr >= begin_ && vaddr < end_) {
    std::snprintf(text, sizeof text, "at +0x%llx", static_cast<unsigned long long>(vaddr - begin_));
  } else {
    std::snprintf(text, sizeof text, "at address 0x%llx", static_cast<unsigned long long>(vaddr));
  }
  return text;
}

bool BodyWalker::is_inside(uint64_t vaddr) const {
  return std::ranges::any_of(
      parts_, [&](const Part& part) { return vaddr >= part.begin && vaddr < part.end; });
}

void BodyWalker::add_exit(const Instruction& instruction, uint8_t condition) {
  body_.exits.push_back({.vaddr = instruction.vaddr,
                         .condition = condition,
                         .emulated = instruction.emulated,
                         .refused = instruction.refused});
}

// Each byte of it decoded, and the last instruction does not run on into what follows.
Result<std::vector<Instruction>> BodyWalker::decode(uint64_t begin, uint64_t end) const {
  std::vector<std::byte> bytes(end - begin);
  RETURN_IF_ERROR(code_.file().read(begin, bytes));
  std::vector<Instruction> decoded;
  decoded.reserve(bytes.size() / 4);
  bool runs_on = true;
  for (size_t at = 0; at < bytes.size(); at += decoded.back().length_bytes) {
    const auto instruction = decode_instruction(std::span(bytes).subspan(at), begin + at);
    if (!instruction) {
      return absl::UnimplementedError("no known instruction " + describe(begin + at));
    }
    decoded.push_back(*instruction);
    if (instruction->is_padding) continue;
    // A call that ends a function is of one that never returns.
    runs_on = instruction->flow == Flow::kNext || instruction->flow == Flow::kConditionalJump ||
              instruction->flow == Flow::kCountingJump;
  }
  if (runs_on) return absl::UnimplementedError("runs on past its end " + describe(end - 1));
  return decoded;
}

Status BodyWalker::add_part(uint64_t begin, uint64_t end) {
  if (end - begin > kMaxBodyBytes - bytes_) {
    return absl::ResourceExhaustedError("longer than " + std::to_string(kMaxBodyBytes >> 10) +
                                        " KiB with the parts split off it");
  }
  if (parts_.size() == kMaxBodyParts) {
    return absl::ResourceExhaustedError("more than " + std::to_string(kMaxBodyParts - 1) +
                                        " parts split off it");
  }
  for (const Part& part : parts_) {
    if (begin < part.end && part.begin < end) {
      return absl::OutOfRangeError("its unwind information overlaps its symbol " + describe(begin));
    }
  }
  ASSIGN_OR_RETURN(std::vector<Instruction> decoded, decode(begin, end));
  bytes_ += end - begin;
  parts_.push_back({.begin = begin, .end = end});
  decoded_.push_back(std::move(decoded));
  RETURN_IF_ERROR(take_landing_pads(parts_.back()));
  return take_jumps(parts_.size() - 1);
}

Status BodyWalker::take_landing_pads(const Part& part) {
  ASSIGN_OR_RETURN(const auto frame, find_frame(code_.file(), part.begin));
  if (!frame) return absl::OkStatus();  // no exception can pass it
  if (frame->end < part.end) {
    return absl::OutOfRangeError("its unwind information ends before its symbol " +
                                 describe(frame->end));
  }
  ASSIGN_OR_RETURN(const std::vector<uint64_t> pads, read_landing_pads(code_.file(), *frame));
  for (const uint64_t pad : pads) jumps_.push_back({.target = pad});
  landing_pads_.insert(landing_pads_.end(), pads.begin(), pads.end());
  return absl::OkStatus();
}

Status BodyWalker::take_jumps(size_t part) {
  for (size_t i = 0; i < decoded_[part].size(); ++i) {
    const Instruction& instruction = decoded_[part][i];
    switch (instruction.flow) {
      case Flow::kNext:
      case Flow::kCall:
      case Flow::kNowhere:
        break;
      case Flow::kReturn:
        add_exit(instruction, GPUPERF_CONDITION_RETURN);
        break;
      case Flow::kJump:
      case Flow::kConditionalJump:
      case Flow::kCountingJump:
        jumps_.push_back({.target = instruction.target, .from = &instruction});
        break;
      case Flow::kIndirectJump:
        indirect_.push_back({.part = part, .index = i});
        break;
    }
    if (body_.exits.size() + indirect_.size() > kMaxBodyExits) {
      return absl::ResourceExhaustedError("more than " + std::to_string(kMaxBodyExits) +
                                          " exits and switches");
    }
  }
  return absl::OkStatus();
}

// Inside: nothing to do. To another function, or to this one's beginning again: an exit. Else more
// of this function.
Status BodyWalker::settle_jump(const Jump& jump) {
  if (is_inside(jump.target)) body_.targets.push_back(jump.target);
  const bool again = jump.target == begin_ && jump.from != nullptr;
  if (is_inside(jump.target) && !again) return absl::OkStatus();
  bool leaves = again || code_.is_plt(jump.target);
  if (!leaves) {
    ASSIGN_OR_RETURN(leaves, code_.begins_function(jump.target));
  }
  if (!leaves) return follow(jump.target);
  if (jump.from == nullptr) {
    return absl::UnimplementedError("a switch or an exception goes on in another function " +
                                    describe(jump.target));
  }
  if (jump.from->flow == Flow::kCountingJump) {
    return absl::UnimplementedError("leaves on a count " + describe(jump.from->vaddr));
  }
  add_exit(*jump.from,
           jump.from->flow == Flow::kJump ? 0 : static_cast<uint8_t>(1 + jump.from->condition));
  return absl::OkStatus();
}

Status BodyWalker::follow(uint64_t target) {
  ASSIGN_OR_RETURN(const auto frame, find_frame(code_.file(), target));
  if (!frame || !code_.file().is_code(target)) {
    return absl::UnimplementedError("jumps to code without unwind information " + describe(target));
  }
  RETURN_IF_ERROR(add_part(frame->begin, frame->end));
  body_.targets.push_back(target);
  return absl::OkStatus();
}

// What can be said of an indirect jump by the code known so far.
Result<BodyWalker::Destination> BodyWalker::judge(CodeReach& reach, CodePlace place) const {
  const Instruction& jump = reach.at(place);
  // Through a pointer: a virtual function, a callback, another library's function.
  if ((jump.form == Form::kJumpMemory && jump.index < 0) ||
      (jump.form == Form::kJumpRegister && reach.holds_pointer(place, jump.reg))) {
    return Destination{};
  }
  const auto table = find_jump_table(reach, place);
  if (!table) return absl::UnimplementedError("indirect jump " + describe(jump.vaddr));
  return Destination{.table = table};
}

CodeReach BodyWalker::make_reach() const { return {decoded_, table_edges_, landing_pads_}; }

// Judges those not judged yet. One may depend on where another leads.
Status BodyWalker::settle_indirect_jumps() {
  CodeReach reach = make_reach();
  std::vector<CodePlace> open;
  Status first_error;
  for (const CodePlace& place : indirect_) {
    const Result<Destination> destination = judge(reach, place);
    if (!destination.ok()) {
      first_error.Update(destination.status());
      open.push_back(place);
      continue;
    }
    RETURN_IF_ERROR(take_destination(place, *destination));
  }
  if (open.size() == indirect_.size()) return first_error;
  indirect_ = std::move(open);
  return absl::OkStatus();
}

Status BodyWalker::take_destination(CodePlace place, const Destination& destination) {
  judged_.emplace_back(place, destination);
  if (!destination.table) {
    add_exit(decoded_[place.part][place.index], 0);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<uint64_t> targets,
                   read_jump_table(code_.file(), *destination.table));
  if (targets.size() > kMaxTableTargets - table_edges_.size()) {
    return absl::ResourceExhaustedError("switches with more than " +
                                        std::to_string(kMaxTableTargets) + " cases");
  }
  for (const uint64_t target : targets) {
    table_edges_.push_back({.from = place, .target = target});
    jumps_.push_back({.target = target});
  }
  return absl::OkStatus();
}

// What was said of an indirect jump is still true now that all the code is known.
Status BodyWalker::check_destinations() const {
  CodeReach reach = make_reach();
  for (const auto& [place, destination] : judged_) {
    const Instruction& jump = reach.at(place);
    const Status changed = absl::UnimplementedError("indirect jump " + describe(jump.vaddr));
    const Result<Destination> now = judge(reach, place);
    if (!now.ok() || *now != destination) return changed;
    if (!destination.table) continue;
    const auto next = std::ranges::upper_bound(body_.targets, destination.table->straight_begin);
    if (next != body_.targets.end() && *next <= destination.table->straight_end) return changed;
  }
  return absl::OkStatus();
}

// No jump goes into the middle of an instruction.
Status BodyWalker::check_targets() {
  std::ranges::sort(body_.targets);
  body_.targets.erase(std::unique(body_.targets.begin(), body_.targets.end()), body_.targets.end());
  for (const uint64_t target : body_.targets) {
    const bool found = std::ranges::any_of(decoded_, [&](const auto& decoded) {
      return std::ranges::binary_search(decoded, target, {}, &Instruction::vaddr);
    });
    if (!found) return absl::UnimplementedError("jump into an instruction " + describe(target));
  }
  return absl::OkStatus();
}

Result<CodeBody> BodyWalker::walk() {
  decoded_.reserve(kMaxBodyParts);
  RETURN_IF_ERROR(add_part(begin_, end_));
  while (!jumps_.empty() || !indirect_.empty()) {
    while (!jumps_.empty()) {
      const Jump jump = jumps_.back();
      jumps_.pop_back();
      RETURN_IF_ERROR(settle_jump(jump));
    }
    // Last, when most of the code that they are judged by is there.
    if (!indirect_.empty()) RETURN_IF_ERROR(settle_indirect_jumps());
  }
  RETURN_IF_ERROR(check_targets());
  RETURN_IF_ERROR(check_destinations());
  if (body_.exits.size() > kMaxBodyExits) {
    return absl::ResourceExhaustedError("more than " + std::to_string(kMaxBodyExits) +
                                        " exits and switches");
  }
  std::ranges::sort(body_.exits, {}, &BodyExit::vaddr);
  return std::move(body_);
}

}  // namespace

Result<CodeBody> walk_body(CodeMap& code, uint64_t vaddr, uint64_t size_bytes) {
  if (size_bytes == 0) return absl::UnimplementedError("its size is not known");
  if (size_bytes > kMaxBodyBytes) {
    return absl::ResourceExhaustedError("longer than " + std::to_string(kMaxBodyBytes >> 10) +
                                        " KiB");
  }
  return BodyWalker(code, vaddr, size_bytes).walk();
}

}  // namespace gpuperf
