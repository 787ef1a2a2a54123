#include "daemon/resolve/vdso_symbols.h"

#include "daemon/unwind/vdso.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxTableBytes = size_t{1} << 20;  // a vDSO has 8 KB

}  // namespace

VdsoSymbols VdsoSymbols::load() {
  VdsoSymbols symbols;
  const Result<Vdso> vdso = copy_vdso();
  if (!vdso.ok()) return symbols;
  symbols.table_ = AddressTable::load(vdso->file.get(), kMaxTableBytes);
  symbols.size_bytes_ = vdso->size_bytes;
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
