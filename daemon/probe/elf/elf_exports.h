#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/elf/elf_file.h"
#include "daemon/probe/elf/elf_symbols.h"

namespace gpuperf {

// What an ELF file exports, functions and data alike, looked up through its hash table: a name
// takes a few small reads where ElfSymbols reads the tables whole.
//
// Value; `file` must outlive it. Errors of `open`: NotFound = no hash table (of the GNU form);
// DataLoss = one that contradicts the file.
class ElfExports {
 public:
  // A name's bucket is searched no further. Of a table that is not hostile it holds a handful.
  static constexpr uint64_t kMaxBucketSymbols = 4'096;

  static Result<ElfExports> open(const ElfFile& file, const std::vector<Elf64_Shdr>& sections);

  // Versions of a symbol are not told apart.
  Result<std::optional<SymbolPlace>> find(std::string_view name) const;

 private:
  // The head of the section; behind it the Bloom filter, the buckets, and a hash per symbol.
  struct Head {
    uint32_t bucket_count = 0;
    uint32_t first_symbol = 0;
    uint32_t bloom_count = 0;
    uint32_t bloom_shift = 0;
  };

  explicit ElfExports(const ElfFile& file) : file_(&file) {}
  template <typename T>
  Result<T> read_entry(const Elf64_Shdr& section, uint64_t offset_bytes) const;
  Result<std::optional<SymbolPlace>> read_symbol(uint64_t index, std::string_view name) const;

  const ElfFile* file_;
  Head head_;
  Elf64_Shdr hashes_{};
  Elf64_Shdr symbols_{};
  Elf64_Shdr names_{};
};

}  // namespace gpuperf
