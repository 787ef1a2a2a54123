#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/elf/elf_file.h"

namespace gpuperf {

// Where a function begins in its file.
struct FunctionSymbol {
  uint64_t file_offset_bytes = 0;
  uint64_t size_bytes = 0;  // 0 = the file does not say
  bool is_ifunc = false;    // the address is that of the resolver, not of the function
  bool operator==(const FunctionSymbol&) const = default;
};

// Where a symbol, of code or data, stands in the file's own numbering.
struct SymbolPlace {
  uint64_t vaddr = 0;
  uint64_t size_bytes = 0;  // 0 = the file does not say
  bool operator==(const SymbolPlace&) const = default;
};

// A function for looking addresses up; the name lives as long as its ElfSymbols.
struct SortedSymbol {
  uint64_t vaddr = 0;  // in the file, before relocation
  uint64_t size_bytes = 0;
  std::string_view name;           // mangled, at most kMaxNameBytes of it
  uint64_t name_offset_bytes = 0;  // in the file; "@" and a version may follow it there
  bool operator==(const SortedSymbol&) const = default;
};

// A function as one symbol names it; the name lives as long as its ElfSymbols.
struct NamedFunction {
  std::string_view name;  // without its version, at most kMaxNameBytes of it
  int preference = 0;     // of several symbols with one name the highest counts, see find_all
  FunctionSymbol where;
};

// The defined functions in an ELF file's symbol tables.
//
// Value; holds a private copy of the tables, so nothing that happens to the file later matters, but
// for names left in it. The file is hostile input: see ElfFile for the bounds and errors; added
// here: NotFound = stripped, none of the wanted tables is there; ResourceExhausted = tables beyond
// kMaxTableBytes together. A symbol is skipped when it is undefined, no function (untyped ones in
// executable segments count as functions), outside the executable segments, or when its name lies
// outside the string table.
class ElfSymbols {
 public:
  // Derived: 2 million symbols (48 MiB) with names of 100 bytes; seen: those of libtorch_cpu 1.13
  // are 3.5 MiB.
  static constexpr uint64_t kMaxTableBytes = uint64_t{256} << 20;
  // 96 MiB of entries; sorting needs 48 bytes more for each.
  static constexpr size_t kMaxSymbols = 4'000'000;
  // Longest of 120,000 names of LLVM, clang, gRPC, cuDNN and PyTorch: 1,042 bytes.
  static constexpr size_t kMaxNameBytes = 4'096;

  enum class Tables {
    kDynamic,  // .dynsym: what the file exports
    kStatic,   // .symtab: every symbol, unless stripped
    kBoth,     // those that are there
  };
  // Of a large library, names take five times as much as all else.
  enum class Names {
    kRead,
    // Left in the file, which must stay open: find_all() reads them in pieces, sort_functions()
    // gives their places only, and nothing else may be called.
    kLeft,
  };
  static Result<ElfSymbols> load(int fd, Tables tables, uint64_t max_table_bytes = kMaxTableBytes,
                                 Names names = Names::kRead);
  // The .symtab of a separate debug file of the file with these segments.
  static Result<ElfSymbols> load_debug(int fd, std::vector<LoadSegment> segments,
                                       uint64_t max_table_bytes = kMaxTableBytes);

  // One pass for all `names`; of several symbols with one name: .dynsym before .symtab, typed
  // before untyped, the default version (foo@@V2) before others (foo@V1), global before weak before
  // local.
  std::vector<std::optional<FunctionSymbol>> find_all(std::span<const std::string> names) const;
  std::optional<FunctionSymbol> find_function(const std::string& name) const;

  // Of a symbol of any kind that is defined in the file: the first with that name.
  std::optional<SymbolPlace> find_symbol(std::string_view name) const;

  // Every typed function that has a name, in the file's order, several with one name included.
  // `visit` ends it by returning false.
  void visit_functions(const std::function<bool(const NamedFunction&)>& visit) const;

  // Functions by address, one per address, untyped ones inside a typed one left out.
  std::vector<SortedSymbol> sort_functions() const;

  const std::vector<LoadSegment>& segments() const { return segments_; }
  // Of the names of all tables, read or left.
  uint64_t name_bytes() const;

 private:
  struct Table {
    std::vector<Elf64_Sym> symbols;
    std::vector<Elf64_Half> versions;   // empty, or one per symbol
    std::vector<char> strings;          // empty where they were left
    uint64_t strings_offset_bytes = 0;  // in the file
    uint64_t strings_bytes = 0;
    bool is_dynamic = false;
  };
  class Sections;

  struct SortKey;
  using VisitNames = std::function<void(std::string_view strings, uint64_t begin, uint64_t end)>;

  void visit_names(const Table& table, size_t longest_bytes, const VisitNames& visit) const;
  bool has_name(const Table& table, const Elf64_Sym& symbol) const;
  std::optional<FunctionSymbol> find_code(const Elf64_Sym& symbol) const;
  std::vector<SortKey> make_sort_keys() const;
  static int get_preference(const Table& table, size_t index, bool is_default_version);
  static std::string_view get_name(const Table& table, const Elf64_Sym& symbol, size_t max_bytes);

  std::vector<Table> tables_;  // .dynsym first
  std::vector<LoadSegment> segments_;
  std::optional<ElfFile> file_;  // where names were left in it
};

}  // namespace gpuperf
