#pragma once

#include <cstdint>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

// The vDSO, the code that the kernel maps into every process, as a file.
struct Vdso {
  Fd file;
  uint64_t size_bytes = 0;
};

// Of this process's own memory: a kernel has one for all processes of 64 bits; those of others (32
// bits) are told by their size. NotFound when the kernel maps none.
Result<Vdso> copy_vdso();

}  // namespace gpuperf
