#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuperf::injector {

// Reads all of `size_bytes` of this process's memory, or returns false. An unreadable address does
// not fault, since the kernel reads (process_vm_readv); where a seccomp filter refuses that,
// nothing can be read. Thread: any, also in a signal handler; errno stays.
bool read_own(uint64_t address, void* to, size_t size_bytes);

}  // namespace gpuperf::injector
