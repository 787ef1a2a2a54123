#include "daemon/resolve/vdso_symbols.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "daemon/base/fd.h"
#include "daemon/probe/discovery/process_maps.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxTableBytes = size_t{1} << 20;  // a vDSO has 8 KB

}  // namespace

VdsoSymbols VdsoSymbols::load() {
  VdsoSymbols symbols;
  const uint64_t start = ::getauxval(AT_SYSINFO_EHDR);
  const Result<ProcessMaps> maps = read_executable_maps("/proc", static_cast<uint32_t>(::getpid()));
  if (start == 0 || !maps.ok()) return symbols;
  const auto mapping = std::ranges::find(maps->entries, start, &MapEntry::start_address);
  if (mapping == maps->entries.end()) return symbols;
  const uint64_t size_bytes = mapping->end_address - start;
  // The reader of symbols wants a file.
  const Fd copy(::memfd_create("vdso", MFD_CLOEXEC));
  const auto* const bytes = std::bit_cast<const char*>(start);
  if (::write(copy.get(), bytes, size_bytes) != static_cast<ssize_t>(size_bytes)) return symbols;
  symbols.table_ = AddressTable::load(copy.get(), kMaxTableBytes);
  symbols.size_bytes_ = size_bytes;
  return symbols;
}

std::optional<VdsoSymbols::Match> VdsoSymbols::find(uint64_t mapping_bytes,
                                                    uint64_t offset_bytes) const {
  if (size_bytes_ == 0 || mapping_bytes != size_bytes_) return std::nullopt;
  const std::optional<uint64_t> vaddr = table_.find_vaddr(offset_bytes);
  const auto function = vaddr ? table_.find_function(*vaddr) : std::nullopt;
  if (!function) return std::nullopt;
  return Match{.symbol = std::string(function->name),
               .symbol_offset_bytes = offset_bytes - (*vaddr - function->vaddr)};
}

}  // namespace gpuperf
