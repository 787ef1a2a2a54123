#include "daemon/probe/code/code_reach.h"

#include <algorithm>
#include <set>
#include <utility>

namespace gpuperf {
namespace {

constexpr int8_t kRax = 0;

bool is_direct_jump(Flow flow) {
  return flow == Flow::kJump || flow == Flow::kConditionalJump || flow == Flow::kCountingJump;
}

bool goes_on(Flow flow) {
  return flow == Flow::kNext || flow == Flow::kCall || flow == Flow::kConditionalJump ||
         flow == Flow::kCountingJump;
}

}  // namespace

CodeReach::CodeReach(std::span<const std::vector<Instruction>> parts, std::vector<CodeEdge> edges,
                     std::vector<uint64_t> landing_pads)
    : parts_(parts), edges_(std::move(edges)), landing_pads_(std::move(landing_pads)) {
  for (size_t part = 0; part < parts_.size(); ++part) {
    for (size_t i = 0; i < parts_[part].size(); ++i) {
      const Instruction& instruction = parts_[part][i];
      if (!is_direct_jump(instruction.flow)) continue;
      edges_.push_back({.from = {.part = part, .index = i}, .target = instruction.target});
    }
  }
  std::ranges::sort(edges_, {}, &CodeEdge::target);
  std::ranges::sort(landing_pads_);
}

bool CodeReach::is_inside(uint64_t vaddr) const {
  return std::ranges::any_of(parts_, [&](const std::vector<Instruction>& part) {
    return vaddr >= part.front().vaddr && vaddr <= part.back().vaddr;
  });
}

bool CodeReach::is_target(uint64_t vaddr) const {
  return std::ranges::binary_search(edges_, vaddr, {}, &CodeEdge::target) ||
         std::ranges::binary_search(landing_pads_, vaddr);
}

// Adds what may have run just before; false = not all of it is known.
bool CodeReach::add_ways(const Value& value, bool from_caller, std::vector<Value>& open) const {
  const auto [part, index] = value.place;
  const uint64_t vaddr = at(value.place).vaddr;
  if (std::ranges::binary_search(landing_pads_, vaddr)) return false;
  bool found = false;
  auto edge = std::ranges::lower_bound(edges_, vaddr, {}, &CodeEdge::target);
  for (; edge != edges_.end() && edge->target == vaddr; ++edge) {
    open.push_back({.place = edge->from, .reg = value.reg});
    found = true;
  }
  // Padding in front of a label is passed only from what comes before it.
  size_t before = index;
  while (before > 0 && parts_[part][before - 1].is_padding &&
         !is_target(parts_[part][before - 1].vaddr)) {
    --before;
  }
  if (before > 0 && goes_on(parts_[part][before - 1].flow)) {
    open.push_back({.place = {.part = part, .index = before - 1}, .reg = value.reg});
    found = true;
  }
  if (part == 0 && before == 0) return from_caller;
  return found;  // nothing leads here that we know of: then something leads here that we do not
}

// Whether each instruction that may have given the value is one that `accept` takes. Moves between
// registers are followed.
template <typename Accept>
bool CodeReach::every_origin(Value value, bool from_caller, Accept accept) {
  std::set<Value> seen;
  std::vector<Value> open;
  if (!add_ways(value, from_caller, open)) return false;
  while (!open.empty()) {
    value = open.back();
    open.pop_back();
    if (!seen.insert(value).second) continue;
    if (steps_left_ == 0) return false;
    --steps_left_;
    const Instruction& instruction = at(value.place);
    if ((instruction.written >> value.reg & 1) != 0) {
      if (accept(instruction, value.reg)) continue;
      if (instruction.form != Form::kMove) return false;
      value.reg = instruction.base;
    }
    if (!add_ways(value, from_caller, open)) return false;
  }
  return true;
}

bool CodeReach::holds_pointer(CodePlace place, int8_t reg) {
  return every_origin({.place = place, .reg = reg}, true,
                      [this](const Instruction& instruction, int8_t written) {
                        if (instruction.flow == Flow::kCall) return written == kRax;
                        if (instruction.form == Form::kLoad) return true;
                        return instruction.form == Form::kAddress &&
                               !is_inside(static_cast<uint64_t>(instruction.value));
                      });
}

std::optional<uint64_t> CodeReach::find_address(CodePlace place, int8_t reg) {
  std::optional<uint64_t> address;
  const bool found = every_origin({.place = place, .reg = reg}, false,
                                  [&](const Instruction& instruction, int8_t) {
                                    const auto value = static_cast<uint64_t>(instruction.value);
                                    if (instruction.form != Form::kAddress) return false;
                                    if (!address) address = value;
                                    return *address == value;
                                  });
  return found ? address : std::nullopt;
}

}  // namespace gpuperf
