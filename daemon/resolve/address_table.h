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

// The functions of one file by address, small enough to keep: 16 bytes for each, and the names
// where they are few. Those of PyTorch's libraries, some 100 MB, stay in the file and are read one
// by one.
//
// Value; any thread once made. Making it never fails: what cannot be read is not in it. A file
// whose functions need more than `max_bytes` gives those it exports only, and failing that, none.
class AddressTable {
 public:
  // Names of one file that are kept: a sixteenth of `max_bytes`.
  static constexpr size_t kKeptPart = 16;

  static AddressTable load(int fd, size_t max_bytes);
  // With the functions of the first of `debug_fds` whose .symtab can be read and has room: separate
  // debug files of that file. All names are kept.
  static AddressTable load(int fd, std::span<const int> debug_fds, size_t max_bytes);
  // For tests, and `load`.
  static AddressTable make(const std::vector<SortedSymbol>& functions,
                           std::vector<LoadSegment> segments);

  // Address in the file's own numbering of a byte of the file; nullopt when no segment holds it.
  std::optional<uint64_t> find_vaddr(uint64_t file_offset_bytes) const;

  // Whether find_function() needs the file.
  bool has_names_in_file() const { return names_offset_bytes_ != 0; }

  struct Match {
    std::string name;    // mangled; empty where the file that has it cannot be read
    uint64_t vaddr = 0;  // where the function begins
    bool operator==(const Match&) const = default;
  };
  // The function that covers `vaddr`. One whose size the file does not tell reaches to the next.
  std::optional<Match> find_function(uint64_t vaddr, int fd = -1) const;

  size_t size_bytes() const;

 private:
  struct Entry {
    uint64_t vaddr = 0;
    uint32_t size_bytes = 0;
    uint32_t name_offset = 0;  // in names_, or in the file behind names_offset_bytes_
  };

  static AddressTable load(int fd, size_t max_bytes, size_t max_kept_bytes);
  static AddressTable refer(const std::vector<SortedSymbol>& functions,
                            std::vector<LoadSegment> segments);
  std::vector<SortedSymbol> list_functions() const;
  std::string read_name(const Entry& entry, int fd) const;

  std::vector<Entry> entries_;       // by vaddr
  std::string names_;                // each ended by NUL
  uint64_t names_offset_bytes_ = 0;  // in the file; 0 = they are in names_
  std::vector<LoadSegment> segments_;
};

}  // namespace gpuperf
