#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuperf::injector {

// Reads this process's memory: all of `size_bytes`, or false. An address where nothing can be read
// is no fault, since the kernel does it (process_vm_readv); where that is refused, by a seccomp
// filter, nothing can. Any thread, also within a signal handler; errno stays.
bool read_own(uint64_t address, void* to, size_t size_bytes);

}  // namespace gpuperf::injector
