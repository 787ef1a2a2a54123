#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bpf/records.h"

namespace gpuperf {

// Reads 8 bytes at an address of another process; empty = they cannot be read.
using ReadWord = std::function<std::optional<uint64_t>(uint64_t address)>;
ReadWord make_remote_reader(uint32_t pid);

// Return addresses of the callers of a call in flight, its own caller first, by the frame pointers
// from its entry on: those frames stay as they are while the call lasts, whatever its thread does.
// A call that ends meanwhile gives a wrong or short stack, never more than GPUPERF_STACK_FRAMES.
// `returns`: addresses that return probes have replaced on the stack.
std::vector<uint64_t> walk_callers(const ReadWord& read, uint64_t entry_sp, uint64_t entry_bp,
                                   std::span<const gpuperf_replaced_return> returns);

}  // namespace gpuperf
