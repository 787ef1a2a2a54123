#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/resolve/address_table.h"

namespace gpuperf {

// Functions of the vDSO, the code that the kernel maps into every process.
//
// Value; any thread once made. Processes of 32 bits, told by the size of theirs, get no names.
class VdsoSymbols {
 public:
  // Without names when the kernel maps none.
  static VdsoSymbols load();

  struct Match {
    std::string symbol;
    uint64_t symbol_offset_bytes = 0;  // in the mapping
  };
  // The function at `offset_bytes` of a mapping of `mapping_bytes`.
  std::optional<Match> find(uint64_t mapping_bytes, uint64_t offset_bytes) const;

 private:
  AddressTable table_;
  uint64_t size_bytes_ = 0;  // 0 = none
};

}  // namespace gpuperf
