#pragma once

#include <chrono>
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
// `raw_bytes`; the one used least recently is forgotten, which `on_forgotten` hears of, and so are
// those of processes that have been gone for `keep_gone`. A stack lives as long as somebody holds
// it.
class StackTable {
 public:
  using OnForgotten = std::function<void(uint64_t raw_id)>;
  StackTable(size_t raw_bytes, std::chrono::nanoseconds keep_gone, OnForgotten on_forgotten);

  // The one stack of these frames.
  StackPtr intern(std::vector<StackFrame> frames, StackEnd end);
  void set(uint64_t raw_id, const ProcessKey& process, const StackPtr& stack);
  // Null = never reported, or forgotten.
  StackPtr find(uint64_t raw_id);
  // Call now and then.
  void forget_gone(const std::function<bool(const ProcessKey&)>& is_running, int64_t now_mono_ns);

 private:
  struct Raw {
    StackPtr stack;
    ProcessKey process;
  };

  void prune();

  const std::chrono::nanoseconds keep_gone_;
  ByteLru<uint64_t, Raw> raw_;
  std::map<ProcessKey, int64_t>
      gone_mono_ns_;  // of processes of raw_: since when they are known so
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<const Stack>> stacks_;  // id, addresses
  size_t prune_at_;
};

}  // namespace gpuperf
