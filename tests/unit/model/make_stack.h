#pragma once

// Stacks as the resolver makes them.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/snapshot.h"

namespace gpuperf::testing {

// Null where there are no frames. Equal ones have equal ids.
inline StackPtr make_stack(std::vector<StackFrame> frames, StackEnd end = StackEnd::kComplete) {
  if (frames.empty()) return nullptr;
  std::string text = std::to_string(static_cast<int>(end));
  for (const StackFrame& frame : frames) {
    text += '\n' + frame.symbol + '\n' + frame.module + '\n' + std::to_string(frame.offset_bytes) +
            '\n' + std::to_string(frame.address);
  }
  const uint64_t id = std::max<uint64_t>(std::hash<std::string>()(text) & INT64_MAX, 1);
  return std::make_shared<const Stack>(Stack{.id = id, .end = end, .frames = std::move(frames)});
}

}  // namespace gpuperf::testing
