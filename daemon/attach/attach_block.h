#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/attach/target.h"
#include "injector/attach_abi.h"

namespace gpuperf {

// The block of attach_abi.h in a process's memory, which the process can change at any time: a
// copy, of which everything that is used was checked.
struct AttachBlock {
  uint64_t address = 0;
  gpuperf_attach_block copy{};
};

// Whether the copy makes sense in that process: magic and version, a known state, a process id; the
// entry and the stub in code of an injected library. Texts are cut to be terminated.
bool check_block(const AttachTarget& target, gpuperf_attach_block& block);

// Nothing: the process has none, or one that makes no sense.
std::optional<AttachBlock> read_block(const AttachTarget& target);

}  // namespace gpuperf
