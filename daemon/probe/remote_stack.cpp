#include "daemon/probe/remote_stack.h"

#include <sys/uio.h>

#include <algorithm>

namespace gpuperf {
namespace {

constexpr uint64_t kWordBytes = sizeof(uint64_t);
// A frame further away than that is none: threads' stacks have 8 MiB.
constexpr uint64_t kMaxStrideBytes = 8 << 20;

}  // namespace

ReadWord make_remote_reader(uint32_t pid) {
  return [pid](uint64_t address) -> std::optional<uint64_t> {
    uint64_t word = 0;
    const iovec here{&word, sizeof word};
    // The address is one of the other process: never followed here.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const iovec there{reinterpret_cast<void*>(address), sizeof word};
    const ssize_t length = process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    return length == sizeof word ? std::optional(word) : std::nullopt;
  };
}

std::vector<uint64_t> walk_callers(const ReadWord& read, uint64_t entry_sp, uint64_t entry_bp,
                                   std::span<const gpuperf_replaced_return> returns) {
  const auto read_return = [&](uint64_t sp) -> std::optional<uint64_t> {
    const auto replaced = std::ranges::find(returns, sp, &gpuperf_replaced_return::sp);
    return replaced == returns.end() ? read(sp) : std::optional<uint64_t>(replaced->address);
  };
  std::vector<uint64_t> stack;
  std::optional<uint64_t> address = read_return(entry_sp);
  uint64_t frame = entry_bp;
  uint64_t lowest = entry_sp;
  while (address && *address != 0) {
    stack.push_back(*address);
    // A register that is no frame pointer seldom points a little further up this very stack.
    const bool plausible =
        frame > lowest && frame - lowest < kMaxStrideBytes && frame % kWordBytes == 0;
    if (!plausible || stack.size() == GPUPERF_STACK_FRAMES) break;
    const std::optional<uint64_t> next = read(frame);
    address = read_return(frame + kWordBytes);
    if (!next) break;
    lowest = frame;
    frame = *next;
  }
  return stack;
}

}  // namespace gpuperf
