#pragma once

// Static probes (USDT, <sys/sdt.h>): the notes by which a file says where they are.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// One place in the code where a static probe stands; a probe may have many.
struct UsdtSite {
  std::string provider;
  std::string name;
  uint64_t file_offset_bytes = 0;       // of the nop
  uint64_t semaphore_offset_bytes = 0;  // a counter the kernel raises while probed; 0 = has none
  bool operator==(const UsdtSite&) const = default;
};

// Of some 3,000 sites of glibc, libstdc++, Python, QEMU and PostgreSQL together; 1 MiB of notes.
inline constexpr size_t kMaxUsdtSites = 65'536;
inline constexpr uint64_t kMaxUsdtNoteBytes = uint64_t{16} << 20;

// The sites in the file's order; empty when it has none. Notes that make no sense, or that point
// outside the code, are skipped. Errors: those of ElfFile; ResourceExhausted = beyond the bounds.
Result<std::vector<UsdtSite>> read_usdt_sites(int fd);

}  // namespace gpuperf
