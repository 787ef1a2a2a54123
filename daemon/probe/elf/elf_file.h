#pragma once

// Headers of an ELF file, read with pread from a descriptor and trusted in nothing: every offset,
// count and size is checked against the file's size and a bound before it is used. Not libelf: its
// mmap mode dies of SIGBUS when the file is truncated meanwhile, and its other modes allocate by
// the header's word.

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// A loadable segment.
struct LoadSegment {
  uint64_t vaddr = 0;
  uint64_t offset_bytes = 0;  // in the file
  uint64_t file_bytes = 0;    // present in the file; the rest is zeroes in memory
  bool executable = false;
  bool operator==(const LoadSegment&) const = default;
};

struct AddressRange {
  uint64_t vaddr = 0;
  uint64_t size_bytes = 0;
  bool operator==(const AddressRange&) const = default;
};

// An x86-64 ELF executable or shared library.
//
// Value made by `open`; the descriptor stays the caller's and must outlive it.
// Errors: FailedPrecondition = not a regular file; InvalidArgument = not ELF, or neither executable
// nor library; Unimplemented = not x86-64; DataLoss = truncated, or headers that contradict the
// file; ResourceExhausted = beyond a bound below; else what read said.
class ElfFile {
 public:
  // Of 906 libraries of Debian, CUDA 13 and PyTorch none has more than 14 segments, 5 of them
  // loaded, and 64 sections. A hostile file's headers take 6.4 MB at most.
  static constexpr size_t kMaxSegments = 512;
  static constexpr size_t kMaxLoadSegments = 64;
  static constexpr size_t kMaxSections = 100'000;
  // The longest of those 906 libraries' are 1 KiB together.
  static constexpr uint64_t kMaxSectionNameBytes = uint64_t{1} << 20;

  // Separate debug files keep the program headers of the file they belong to, whose segments they
  // do not hold: for them no segment is read.
  enum class Kind { kMapped, kDebug };
  static Result<ElfFile> open(int fd, Kind kind = Kind::kMapped);

  // Fills `bytes` from the file. DataLoss when the file is shorter.
  Status read(uint64_t offset_bytes, std::span<std::byte> bytes) const;
  // NotFound when the file has no section headers; never empty.
  Result<std::vector<Elf64_Shdr>> read_sections() const;
  // Which of `sections` holds their names; may lie beyond them. 0 = none.
  size_t section_names_index(const std::vector<Elf64_Shdr>& sections) const;
  // The names of `sections`, for get_section_name; empty when the file has none. ResourceExhausted
  // beyond kMaxSectionNameBytes.
  Result<std::string> read_section_names(const std::vector<Elf64_Shdr>& sections) const;

  const std::vector<LoadSegment>& segments() const { return segments_; }
  // Where .eh_frame_hdr lies, as far as the file says.
  const std::optional<AddressRange>& unwind_table() const { return unwind_table_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool holds(uint64_t offset_bytes, uint64_t bytes) const {
    return offset_bytes <= size_bytes_ && bytes <= size_bytes_ - offset_bytes;
  }

 private:
  ElfFile() = default;
  Status read_header();
  Status read_segments();

  int fd_ = -1;
  uint64_t size_bytes_ = 0;
  Elf64_Ehdr header_{};
  std::vector<LoadSegment> segments_;
  std::optional<AddressRange> unwind_table_;
};

// Empty when it lies outside `names`.
std::string_view get_section_name(std::string_view names, const Elf64_Shdr& section);

}  // namespace gpuperf
