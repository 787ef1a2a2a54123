#include "injector/own_memory.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gpuperf::injector {

namespace {

// Returns how many bytes were read, in whole pieces.
size_t read_pieces(const iovec* pieces, size_t piece_count, void* to, size_t size_bytes) {
  const int before = errno;
  iovec local = {to, size_bytes};
  // Ask the kernel each time: a cached pid would be the parent's in a forked child.
  const long pid = syscall(SYS_getpid);
  const long count = syscall(SYS_process_vm_readv, pid, &local, 1, pieces, piece_count, 0);
  errno = before;
  return count < 0 ? 0 : static_cast<size_t>(count);
}

}  // namespace

bool read_own(uint64_t address, void* to, size_t size_bytes) {
  const iovec piece = {reinterpret_cast<void*>(address), size_bytes};
  return read_pieces(&piece, 1, to, size_bytes) == size_bytes;
}

size_t read_own_up_to(uint64_t address, void* to, size_t size_bytes) {
  constexpr uint64_t kPageBytes = 4096;
  iovec pieces[kReadablePagesMax];
  size_t count = 0, bytes = 0;
  while (count < kReadablePagesMax && bytes < size_bytes) {
    const uint64_t begin = address + bytes;
    const size_t piece_bytes = std::min(size_bytes - bytes, kPageBytes - begin % kPageBytes);
    pieces[count++] = {reinterpret_cast<void*>(begin), piece_bytes};
    bytes += piece_bytes;
  }
  return read_pieces(pieces, count, to, bytes);
}

}  // namespace gpuperf::injector
