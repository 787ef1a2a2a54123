#pragma once

// The CUDA runtime that nvcc links into programs by default, instead of using libcudart.

#include <span>
#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// Of one file.
struct StaticRuntime {
  bool is_linked = false;     // its symbols are there
  bool is_stripped = false;   // there are kernels in the file, and no symbols: it may be linked
  std::vector<bool> defined;  // one per name asked for; all false unless is_linked
  bool operator==(const StaticRuntime&) const = default;
};

// Looks for a linked-in runtime, and which of `names` it defines. Only what is defined and not
// exported counts: a library that exports cudaMalloc wraps the real one, which is probed already.
// Costs 40 us where .symtab is stripped, as in nearly every library. Errors: those of ElfFile and
// ElfSymbols but NotFound.
Result<StaticRuntime> find_static_runtime(int fd, std::span<const std::string> names);

}  // namespace gpuperf
