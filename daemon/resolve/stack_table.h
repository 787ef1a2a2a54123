#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/base/byte_lru.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// What a stack of these frames is called, in whatever process and run: a hash of what the frames
// show. Addresses count only where nothing better is known.
uint64_t make_stack_id(const std::vector<StackFrame>& frames, StackEnd end);

// The stacks in use, equal ones once, and those that events may still name by what the kernel side
// called them.
//
// Thread: one at a time; the stacks themselves may be held by any. Bounds: stacks by raw id
// `raw_bytes`; the one used least recently is forgotten, which `on_forgotten` hears of. A stack
// lives as long as somebody holds it.
class StackTable {
 public:
  using OnForgotten = std::function<void(uint64_t raw_id)>;
  StackTable(size_t raw_bytes, OnForgotten on_forgotten);

  // The one stack of these frames.
  StackPtr intern(std::vector<StackFrame> frames, StackEnd end);
  void set(uint64_t raw_id, const StackPtr& stack);
  // Null = never reported, or forgotten.
  StackPtr find(uint64_t raw_id);

 private:
  void prune();

  ByteLru<uint64_t, StackPtr> raw_;
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<const Stack>> stacks_;  // id, addresses
  size_t prune_at_;
};

}  // namespace gpuperf
