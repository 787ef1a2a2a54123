#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/elf/elf_file.h"

namespace gpuperf {

// A section as the loader will place it.
struct NamedSection {
  std::string name;
  Elf64_Word type = 0;
  Elf64_Word link = 0;  // index of the section it refers to
  uint64_t vaddr = 0;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  bool contains(uint64_t address) const { return address - vaddr < size_bytes; }
};

// An ELF file by its virtual addresses, before relocation.
//
// Value; the descriptor stays the caller's and must outlive it. Reads with bounds, like ElfFile.
class CodeFile {
 public:
  static Result<CodeFile> open(int fd);

  std::optional<uint64_t> find_vaddr(uint64_t offset_bytes) const;  // in an executable segment
  std::optional<uint64_t> find_offset(uint64_t vaddr) const;
  bool is_code(uint64_t vaddr) const;
  // OutOfRange when the bytes are not all in the file, in one segment.
  Status read(uint64_t vaddr, std::span<std::byte> bytes) const;
  // As much of `size_bytes` from `vaddr` on as its segment has in the file.
  Result<std::vector<std::byte>> read_up_to(uint64_t vaddr, uint64_t size_bytes) const;

  const ElfFile& elf() const { return elf_; }
  // Empty when the file has no section headers.
  const std::vector<NamedSection>& sections() const { return sections_; }
  const NamedSection* find_section(std::string_view name) const;  // null = none

 private:
  explicit CodeFile(ElfFile elf) : elf_(std::move(elf)) {}
  Status read_section_table();
  const LoadSegment* find_segment(uint64_t vaddr) const;

  ElfFile elf_;
  std::vector<NamedSection> sections_;
};

}  // namespace gpuperf
