#pragma once

#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// One function of the source at an address.
struct SourceFrame {
  // Mangled where the language mangles, "space::name" of what is local to its file; empty = not
  // known.
  std::string symbol;
  std::string file;          // empty = not known
  uint32_t line = 0;         // 0 = not known
  uint64_t begin_vaddr = 0;  // where the code of the function begins; 0 = not known, or inlined
  bool operator==(const SourceFrame&) const = default;
};

// Source positions and inlined functions of one file, from its DWARF, through libdw.
//
// Thread: one. Maps the file and trusts libdw with it, which reads past its sections and exhausts
// memory on files made for that, and dies of SIGBUS when the file is cut meanwhile: to be used in a
// process that may die, see DwarfWorker. Memory: what libdw reads of the units asked for, until it
// is destroyed.
// Units are found by their own ranges, not by .debug_aranges, which clang does not write.
class DwarfReader {
 public:
  // Longer names and paths are cut.
  static constexpr size_t kMaxTextBytes = 4'096;
  // Functions inlined into one another at one address; more are left out.
  static constexpr size_t kMaxDepth = 128;

  // `alternate_fd`: what .gnu_debugaltlink of the file names (dwz), -1 = none. The descriptors stay
  // the caller's and must outlive the reader.
  static Result<std::unique_ptr<DwarfReader>> open(int fd, int alternate_fd);
  ~DwarfReader();
  DwarfReader(const DwarfReader&) = delete;
  DwarfReader& operator=(const DwarfReader&) = delete;

  // Innermost first; all but the last are inlined into the next. Empty where no unit has code.
  std::vector<SourceFrame> find_frames(uint64_t vaddr);

 private:
  struct ElfEnd {
    void operator()(Elf* elf) const { elf_end(elf); }
  };
  struct DwarfEnd {
    void operator()(Dwarf* dwarf) const { dwarf_end(dwarf); }
  };
  // The code of a unit, or of a function.
  struct Range {
    uint64_t begin_vaddr = 0;
    uint64_t end_vaddr = 0;
    Dwarf_Off entry = 0;  // offset of the unit's or the function's entry
  };
  using Ranges = std::vector<Range>;  // sorted by begin_vaddr
  struct UnitIndex {
    Ranges functions;
    // The namespace or class around functions and around these; none for those of the unit itself.
    std::unordered_map<Dwarf_Off, Dwarf_Off> enclosing;
  };

  DwarfReader() = default;
  static void add_ranges(Dwarf_Die& entry, Ranges& ranges);
  // Null when none covers `vaddr`; of several, which only damaged files have, one.
  static const Range* find_range(const Ranges& ranges, uint64_t vaddr);
  void index_units();
  const UnitIndex& index_functions(Dwarf_Die& unit);
  std::string get_function_name(const UnitIndex& index, const Dwarf_Die& unit, Dwarf_Die function);
  std::string get_scope_name(const UnitIndex& index, Dwarf_Off entry);
  std::vector<SourceFrame> list_frames(const UnitIndex& index, Dwarf_Die& unit, Dwarf_Die& function,
                                       uint64_t vaddr);

  // Destroyed from the last to the first: a Dwarf uses its Elf and its alternate.
  std::unique_ptr<Elf, ElfEnd> alternate_elf_;
  std::unique_ptr<Dwarf, DwarfEnd> alternate_;
  std::unique_ptr<Elf, ElfEnd> elf_;
  std::unique_ptr<Dwarf, DwarfEnd> dwarf_;
  Ranges units_;
  std::map<Dwarf_Off, UnitIndex> indices_;  // by unit, of those asked for
};

}  // namespace gpuperf
