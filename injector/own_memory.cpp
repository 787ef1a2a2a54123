#include "injector/own_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace gpuperf::injector {

void* map_zeroes(size_t size_bytes) {
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory != MAP_FAILED ? memory : nullptr;
}

long ask_own_pid() { return syscall(SYS_getpid); }

size_t copy_own(long pid, const iovec* to, size_t to_count, const iovec* from, size_t from_count) {
  const int before = errno;
  const long count = syscall(SYS_process_vm_readv, pid, to, to_count, from, from_count, 0);
  errno = before;
  return count > 0 ? static_cast<size_t>(count) : 0;
}

bool read_own(long pid, uint64_t address, void* to, size_t size_bytes) {
  const iovec local = {to, size_bytes};
  const iovec remote = {reinterpret_cast<void*>(address), size_bytes};
  return copy_own(pid, &local, 1, &remote, 1) == size_bytes;
}

bool read_own(uint64_t address, void* to, size_t size_bytes) {
  return read_own(ask_own_pid(), address, to, size_bytes);
}

}  // namespace gpuperf::injector
