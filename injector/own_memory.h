#pragma once

#include <sys/uio.h>

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

// The same for several reads in turn, with ask_own_pid() before the first: an id kept for longer is
// the parent's in a forked child.
bool read_own(long pid, uint64_t address, void* to, size_t size_bytes);
long ask_own_pid();
// From several places at once, up to the first byte that cannot be read; returns the number of
// bytes. Takes 2 to 3 us from within a launch (H200 host), as a single read does.
size_t copy_own(long pid, const iovec* to, size_t to_count, const iovec* from, size_t from_count);

// Copies of pages that were read, for reads that are near each other: each costs a system call.
// Not thread-safe.
template <size_t kPages>
class OwnPages {
 public:
  // Before the first read, and before reads in what may be another process by now.
  void begin() { pid_ = ask_own_pid(); }
  long pid() const { return pid_; }
  void clear() {
    for (Page& page : pages_) page.address = kNone;
    next_ = 0;
  }
  // Like read_own, of memory as it was since clear().
  bool read(uint64_t address, void* to, size_t size_bytes) {
    const uint64_t offset = address % kPageBytes;
    if (size_bytes > kPageBytes - offset) return read_own(pid_, address, to, size_bytes);
    const Page* const page = find(address - offset);
    if (page == nullptr) return false;
    std::memcpy(to, page->bytes + offset, size_bytes);
    return true;
  }
  // Copies several pages at once, from that of `address` on, right after clear(). Fewer where they
  // end.
  void read_ahead(uint64_t address, size_t count) {
    iovec local[kPages];
    iovec remote[kPages];
    if (count > kPages) count = kPages;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t page = address - address % kPageBytes + i * kPageBytes;
      local[i] = {pages_[i].bytes, kPageBytes};
      remote[i] = {reinterpret_cast<void*>(page), kPageBytes};
    }
    const size_t read_count = copy_own(pid_, local, count, remote, count) / kPageBytes;
    for (; next_ < read_count; ++next_) {
      pages_[next_].address = reinterpret_cast<uint64_t>(remote[next_].iov_base);
    }
  }

  static constexpr uint64_t kPageBytes = 4096;

 private:
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
    page.address = read_own(pid_, address, page.bytes, kPageBytes) ? address : kNone;
    return page.address == kNone ? nullptr : &page;
  }

  Page pages_[kPages];
  size_t next_ = 0;
  long pid_ = 0;
};

}  // namespace gpuperf::injector
