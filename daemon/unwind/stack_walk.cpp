#include "daemon/unwind/stack_walk.h"

#include <algorithm>

namespace gpuperf {
namespace {

int unwind_read(void* memory, uint64_t address, void* to, uint32_t size_bytes) {
  const auto& read = *static_cast<const ReadMemory*>(memory);
  return read(address, {static_cast<std::byte*>(to), size_bytes}) ? 0 : -1;
}

#include "bpf/unwind.h"

}  // namespace

StackEnd walk_stack(std::vector<NativeFrame>& frames, uint64_t bp, const FindRule& find_rule,
                    const ReadMemory& read, std::span<const ReplacedReturn> returns) {
  if (frames.empty()) return StackEnd::kUnreadable;
  unwind_frame frame{.pc = frames.back().pc,
                     .sp = frames.back().sp,
                     .bp = bp,
                     .is_exact = frames.back().is_exact ? 1u : 0u};
  // unwind_read gets it back as const.
  auto* const memory = const_cast<ReadMemory*>(&read);
  for (;;) {
    gpuperf_unwind_rule rule = find_rule(frame.pc, frame.is_exact != 0);
    if (rule.kind == GPUPERF_UNWIND_UNKNOWN && frame.is_exact == 0) {
      const auto replaced = std::ranges::find(returns, frame.sp - 8, &ReplacedReturn::sp);
      if (replaced != returns.end()) {
        frame.pc = frames.back().pc = replaced->address;
        rule = find_rule(frame.pc, false);
      }
    }
    if (const int end = unwind_step(memory, &rule, &frame); end != UNWIND_GOES_ON) {
      return static_cast<StackEnd>(end);
    }
    if (frames.size() >= GPUPERF_STACK_FRAMES) return StackEnd::kCut;
    frames.push_back({.pc = frame.pc, .sp = frame.sp, .is_exact = frame.is_exact != 0});
  }
}

StackEnd walk_live_stack(std::vector<NativeFrame>& frames, const LiveStack& live,
                         const FindRule& find_rule, const ReadMemory& read) {
  uint64_t caller = 0;
  if (!read(live.sp, std::as_writable_bytes(std::span(&caller, 1)))) return StackEnd::kUnreadable;
  frames.push_back({.pc = caller, .sp = live.sp + 8});
  return walk_stack(frames, live.bp, find_rule, read, live.returns);
}

}  // namespace gpuperf
