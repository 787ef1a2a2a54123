// Any bytes as a perf map (daemon/resolve/perf_map.h), as it grows: a zero byte ends what was
// written so far.

#include "daemon/resolve/perf_map.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  constexpr size_t kMaxBytes = 4'096;
  PerfMap map(kMaxBytes);
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, bytes.find('\0'));
    if (map.append(piece) > piece.size()) return "more was taken than there is";
    if (map.size_bytes() > kMaxBytes) return "more is kept than may be";
    for (const uint64_t address :
         {uint64_t{0}, uint64_t{0x1000}, uint64_t{0x7f0000001234}, UINT64_MAX}) {
      const auto match = map.find(address);
      if (!match) continue;
      if (match->start_address > address) return "a function that begins behind the address";
      if (match->name.size() > PerfMap::kMaxNameBytes) return "a name beyond its bound";
    }
    bytes.remove_prefix(std::min(bytes.size(), piece.size() + 1));
  }
  return "";
}

}  // namespace gpuperf::fuzz
