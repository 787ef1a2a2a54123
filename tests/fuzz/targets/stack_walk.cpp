// Any bytes as the memory of a stack and as the rules by which it is walked: bpf/unwind.h, as the
// kernel side compiles it too, and daemon/unwind/stack_walk.h.

#include <cstring>

#include "daemon/unwind/stack_walk.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  constexpr uint64_t kStackAddress = 0x7000;
  if (bytes.size() < sizeof(gpuperf_unwind_rule)) return "";
  const FindRule find_rule = [bytes](uint64_t pc, bool is_exact) {
    gpuperf_unwind_rule rule{};
    const size_t at = (pc * 8 + (is_exact ? 4 : 0)) % (bytes.size() - sizeof rule + 1);
    std::memcpy(&rule, bytes.data() + at, sizeof rule);
    rule.kind %= GPUPERF_UNWIND_KINDS;  // as find_unwind_rule() makes them
    return rule;
  };
  StackCopy copy;
  StackMemory& memory = copy.memory.emplace_back();
  memory.address = kStackAddress;
  memory.bytes.resize(bytes.size());
  std::memcpy(memory.bytes.data(), bytes.data(), bytes.size());
  for (size_t at = 0; at < bytes.size(); at += 4'096) memory.is_present.push_back(bytes[at] != 'x');
  std::vector<NativeFrame> frames = {{.pc = static_cast<uint8_t>(bytes[0]), .sp = kStackAddress}};
  const ReplacedReturn replaced[] = {{.sp = kStackAddress + 16, .address = 3}};
  (void)walk_stack(frames, kStackAddress + 8, find_rule, make_copy_reader(copy), replaced);
  std::vector<NativeFrame> live;
  (void)walk_live_stack(live, {.sp = kStackAddress, .bp = kStackAddress + 64}, find_rule,
                        make_copy_reader(copy));
  return frames.size() > GPUPERF_STACK_FRAMES || live.size() > GPUPERF_STACK_FRAMES
             ? "more frames than there can be"
             : "";
}

std::vector<std::string> make_seeds() { return {std::string(512, '\1'), std::string(64, '\0')}; }

}  // namespace gpuperf::fuzz
