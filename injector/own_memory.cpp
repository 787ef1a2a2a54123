#include "injector/own_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace gpuperf::injector {

void* map_zeroes(size_t size_bytes) {
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory != MAP_FAILED ? memory : nullptr;
}

bool read_own(uint64_t address, void* to, size_t size_bytes) {
  const int before = errno;
  iovec local = {to, size_bytes};
  iovec remote = {reinterpret_cast<void*>(address), size_bytes};
  // Ask the kernel each time: a cached pid would be the parent's in a forked child.
  const long pid = syscall(SYS_getpid);
  const long count = syscall(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0);
  errno = before;
  return count >= 0 && static_cast<size_t>(count) == size_bytes;
}

}  // namespace gpuperf::injector
