#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/probe/code/code_decoder.h"

namespace gpuperf {

// One instruction of a function that lies in several runs of code.
struct CodePlace {
  size_t part = 0;
  size_t index = 0;
  auto operator<=>(const CodePlace&) const = default;
};

// From where to where a function jumps.
struct CodeEdge {
  CodePlace from;
  uint64_t target = 0;  // vaddr
};

// Follows register values backwards through a function, along every way that leads to a place.
//
// Refers to `parts`, which must outlive it: its runs of instructions by rising address, the
// beginning first. What it finds holds as far as `edges`, the jumps through tables, and
// `landing_pads`, where exceptions go on, are complete.
class CodeReach {
 public:
  // Steps left over all questions asked; used up, every answer is no. 100,000 take 10 ms.
  static constexpr size_t kMaxSteps = 100'000;

  CodeReach(std::span<const std::vector<Instruction>> parts, std::vector<CodeEdge> edges,
            std::vector<uint64_t> landing_pads);

  // Whether `reg` surely holds a pointer to code elsewhere when `place` runs: loaded from memory
  // by no index, returned by a call, passed by the caller, or the address of something outside.
  // The target of a switch is computed instead.
  bool holds_pointer(CodePlace place, int8_t reg);
  // The one address that `reg` holds when `place` runs, if the code says which.
  std::optional<uint64_t> find_address(CodePlace place, int8_t reg);

  const Instruction& at(CodePlace place) const { return parts_[place.part][place.index]; }
  std::span<const Instruction> part(size_t index) const { return parts_[index]; }

 private:
  struct Value {
    CodePlace place;  // before it runs
    int8_t reg = -1;
    auto operator<=>(const Value&) const = default;
  };

  template <typename Accept>
  bool every_origin(Value value, bool from_caller, Accept accept);
  bool add_ways(const Value& value, bool from_caller, std::vector<Value>& open) const;
  bool is_inside(uint64_t vaddr) const;
  bool is_target(uint64_t vaddr) const;

  std::span<const std::vector<Instruction>> parts_;
  std::vector<CodeEdge> edges_;         // sorted by target
  std::vector<uint64_t> landing_pads_;  // sorted
  size_t steps_left_ = kMaxSteps;
};

}  // namespace gpuperf
