#include "daemon/unwind/process_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>

namespace gpuperf {

ReadMemory make_direct_reader(uint32_t pid) {
  return [pid](uint64_t address, std::span<std::byte> bytes) {
    const iovec here{bytes.data(), bytes.size()};
    // The address is one of the other process: never followed here.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const iovec there{reinterpret_cast<void*>(address), bytes.size()};
    const ssize_t length = process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    return length == static_cast<ssize_t>(bytes.size());
  };
}

namespace {

bool read_copy(const StackMemory& memory, uint64_t address, std::span<std::byte> to) {
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t offset = address - memory.address;  // wraps below it: beyond the copy, too
  if (offset > memory.bytes.size() || to.size() > memory.bytes.size() - offset) return false;
  const uint64_t first_page = memory.address / kPageBytes;
  const uint64_t last_page = (address + to.size() - 1) / kPageBytes - first_page;
  for (uint64_t page = address / kPageBytes - first_page; page <= last_page; ++page) {
    if (page >= memory.is_present.size() || !memory.is_present[page]) return false;
  }
  std::memcpy(to.data(), memory.bytes.data() + offset, to.size());
  return true;
}

}  // namespace

ReadMemory make_copy_reader(const StackCopy& copy) {
  return [&copy](uint64_t address, std::span<std::byte> to) {
    // A word may stand across two parts.
    size_t done = 0;
    while (done < to.size()) {
      const size_t piece = std::min<size_t>(to.size() - done, 8 - (address + done) % 8);
      const auto rest = to.subspan(done, piece);
      if (std::ranges::none_of(copy.memory, [&](const StackMemory& memory) {
            return read_copy(memory, address + done, rest);
          })) {
        return false;
      }
      done += piece;
    }
    return true;
  };
}

}  // namespace gpuperf
