#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gpuperf::injector {

// Memory of zeroes that takes none until it is used; null = there is none. Give it back with
// munmap.
void* map_zeroes(size_t size_bytes);

// Reads all of `size_bytes` of this process's memory, or returns false. An unreadable address does
// not fault, since the kernel reads (process_vm_readv); where a seccomp filter refuses that,
// nothing can be read. Thread: any, also in a signal handler; errno stays.
bool read_own(uint64_t address, void* to, size_t size_bytes);

// Copies of pages that were read, for reads that are near each other: each costs a system call.
// Not thread-safe.
template <size_t kPages>
class OwnPages {
 public:
  void clear() {
    for (Page& page : pages_) page.address = kNone;
  }
  // Like read_own, of memory as it was since clear().
  bool read(uint64_t address, void* to, size_t size_bytes) {
    const uint64_t offset = address % kPageBytes;
    if (size_bytes > kPageBytes - offset) return read_own(address, to, size_bytes);
    const Page* const page = find(address - offset);
    if (page == nullptr) return false;
    std::memcpy(to, page->bytes + offset, size_bytes);
    return true;
  }

 private:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kNone = ~uint64_t{0};

  struct Page {
    uint64_t address = kNone;
    std::byte bytes[kPageBytes];
  };

  const Page* find(uint64_t address) {
    for (const Page& page : pages_) {
      if (page.address == address) return &page;
    }
    Page& page = pages_[next_++ % kPages];
    page.address = read_own(address, page.bytes, kPageBytes) ? address : kNone;
    return page.address == kNone ? nullptr : &page;
  }

  Page pages_[kPages];
  size_t next_ = 0;
};

}  // namespace gpuperf::injector
