#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/probe/elf/elf_symbols.h"

namespace gpuperf {

// The functions of one file by address, small enough to keep: 16 bytes and the name for each.
//
// Value; any thread once made. Making it never fails: what cannot be read is not in it. A file
// whose functions need more than `max_bytes` gives those it exports only, and failing that, none.
class AddressTable {
 public:
  static AddressTable load(int fd, size_t max_bytes);
  // With the functions of the first of `debug_fds` whose .symtab can be read and has room: separate
  // debug files of that file.
  static AddressTable load(int fd, std::span<const int> debug_fds, size_t max_bytes);
  // For tests, and `load`.
  static AddressTable make(const std::vector<SortedSymbol>& functions,
                           std::vector<LoadSegment> segments);

  // Address in the file's own numbering of a byte of the file; nullopt when no segment holds it.
  std::optional<uint64_t> find_vaddr(uint64_t file_offset_bytes) const;

  struct Match {
    std::string_view name;  // mangled; lives as long as the table
    uint64_t vaddr = 0;     // where the function begins
    bool operator==(const Match&) const = default;
  };
  // The function that covers `vaddr`. One whose size the file does not tell reaches to the next.
  std::optional<Match> find_function(uint64_t vaddr) const;

  size_t size_bytes() const;

 private:
  struct Entry {
    uint64_t vaddr = 0;
    uint32_t size_bytes = 0;
    uint32_t name_offset = 0;  // in names_
  };

  std::vector<SortedSymbol> list_functions() const;

  std::vector<Entry> entries_;  // by vaddr
  std::string names_;           // each ended by NUL
  std::vector<LoadSegment> segments_;
};

}  // namespace gpuperf
