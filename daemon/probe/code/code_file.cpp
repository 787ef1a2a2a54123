#include "daemon/probe/code/code_file.h"

#include <algorithm>
#include <utility>

namespace gpuperf {
Result<CodeFile> CodeFile::open(int fd) {
  ASSIGN_OR_RETURN(ElfFile elf, ElfFile::open(fd));
  CodeFile file(std::move(elf));
  RETURN_IF_ERROR(file.read_section_table());
  return file;
}

Status CodeFile::read_section_table() {
  const Result<std::vector<Elf64_Shdr>> headers = elf_.read_sections();
  if (absl::IsNotFound(headers.status())) return absl::OkStatus();
  if (!headers.ok()) return headers.status();
  ASSIGN_OR_RETURN(const std::string names, elf_.read_section_names(*headers));
  for (const Elf64_Shdr& header : *headers) {
    const bool in_file = header.sh_type != SHT_NOBITS && header.sh_type != SHT_NULL &&
                         elf_.holds(header.sh_offset, header.sh_size);
    sections_.push_back({.name = std::string(get_section_name(names, header)),
                         .type = header.sh_type,
                         .link = header.sh_link,
                         .vaddr = header.sh_addr,
                         .offset_bytes = header.sh_offset,
                         .size_bytes = in_file ? header.sh_size : 0});
  }
  return absl::OkStatus();
}

const NamedSection* CodeFile::find_section(std::string_view name) const {
  const auto found = std::ranges::find(sections_, name, &NamedSection::name);
  return found == sections_.end() ? nullptr : &*found;
}

const LoadSegment* CodeFile::find_segment(uint64_t vaddr) const {
  for (const LoadSegment& segment : elf_.segments()) {
    if (vaddr >= segment.vaddr && vaddr - segment.vaddr < segment.file_bytes) return &segment;
  }
  return nullptr;
}

std::optional<uint64_t> CodeFile::find_vaddr(uint64_t offset_bytes) const {
  for (const LoadSegment& segment : elf_.segments()) {
    if (!segment.executable || offset_bytes < segment.offset_bytes) continue;
    const uint64_t distance = offset_bytes - segment.offset_bytes;
    if (distance < segment.file_bytes) return segment.vaddr + distance;
  }
  return std::nullopt;
}

std::optional<uint64_t> CodeFile::find_offset(uint64_t vaddr) const {
  const LoadSegment* segment = find_segment(vaddr);
  if (segment == nullptr) return std::nullopt;
  return segment->offset_bytes + (vaddr - segment->vaddr);
}

bool CodeFile::is_code(uint64_t vaddr) const {
  const LoadSegment* segment = find_segment(vaddr);
  return segment != nullptr && segment->executable;
}

Status CodeFile::read(uint64_t vaddr, std::span<std::byte> bytes) const {
  const LoadSegment* segment = find_segment(vaddr);
  if (segment == nullptr || bytes.size() > segment->file_bytes - (vaddr - segment->vaddr)) {
    return absl::OutOfRangeError("an address outside the file");
  }
  return elf_.read(segment->offset_bytes + (vaddr - segment->vaddr), bytes);
}

Result<std::vector<std::byte>> CodeFile::read_up_to(uint64_t vaddr, uint64_t size_bytes) const {
  const LoadSegment* segment = find_segment(vaddr);
  if (segment == nullptr) return absl::OutOfRangeError("an address outside the file");
  std::vector<std::byte> bytes(
      std::min(size_bytes, segment->file_bytes - (vaddr - segment->vaddr)));
  RETURN_IF_ERROR(read(vaddr, bytes));
  return bytes;
}

}  // namespace gpuperf
