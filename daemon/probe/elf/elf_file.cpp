#include "daemon/probe/elf/elf_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace gpuperf {
namespace {

Status make_truncated(const char* what) {
  return absl::DataLossError(std::string("truncated or damaged ELF file: ") + what +
                             " lie beyond its end");
}

}  // namespace

Result<ElfFile> ElfFile::open(int fd, Kind kind) {
  struct stat found {};
  if (::fstat(fd, &found) != 0) return errno_status(errno, "fstat");
  if (!S_ISREG(found.st_mode)) return absl::FailedPreconditionError("not a regular file");
  ElfFile file;
  file.fd_ = fd;
  file.size_bytes_ = static_cast<uint64_t>(found.st_size);
  RETURN_IF_ERROR(file.read_header());
  if (kind == Kind::kMapped) RETURN_IF_ERROR(file.read_segments());
  return file;
}

Status ElfFile::read(uint64_t offset_bytes, std::span<std::byte> bytes) const {
  if (!holds(offset_bytes, bytes.size())) return make_truncated("tables");
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status(errno, "read");
    // It has become shorter since fstat.
    if (count == 0) return make_truncated("tables");
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset_bytes += static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

Status ElfFile::read_header() {
  if (!holds(0, SELFMAG)) return absl::InvalidArgumentError("not an ELF file: too short");
  const size_t length = std::min<uint64_t>(size_bytes_, sizeof header_);
  RETURN_IF_ERROR(read(0, std::as_writable_bytes(std::span(&header_, 1)).first(length)));
  if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) {
    return absl::InvalidArgumentError("not an ELF file");
  }
  if (length < sizeof header_) return make_truncated("headers");
  if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
      header_.e_machine != EM_X86_64) {
    return absl::UnimplementedError("an ELF file, but not for x86-64 (machine " +
                                    std::to_string(header_.e_machine) + ")");
  }
  if (header_.e_type != ET_DYN && header_.e_type != ET_EXEC) {
    return absl::InvalidArgumentError("an ELF file, but neither an executable nor a library");
  }
  return absl::OkStatus();
}

Status ElfFile::read_segments() {
  const size_t count = header_.e_phnum;
  if (count > kMaxSegments) {
    return absl::ResourceExhaustedError("too large: " + std::to_string(count) + " segments");
  }
  if (count > 0 && header_.e_phentsize != sizeof(Elf64_Phdr)) {
    return absl::DataLossError("damaged ELF file: size of a program header");
  }
  std::vector<Elf64_Phdr> headers(count);
  RETURN_IF_ERROR(read(header_.e_phoff, std::as_writable_bytes(std::span(headers))));
  for (const Elf64_Phdr& header : headers) {
    if (header.p_type == PT_GNU_EH_FRAME) {
      unwind_table_ = {.vaddr = header.p_vaddr, .size_bytes = header.p_filesz};
    }
    if (header.p_type != PT_LOAD) continue;
    if (!holds(header.p_offset, header.p_filesz)) return make_truncated("segments");
    if (segments_.size() == kMaxLoadSegments) {
      return absl::ResourceExhaustedError("too large: more than " +
                                          std::to_string(kMaxLoadSegments) + " loaded segments");
    }
    segments_.push_back({.vaddr = header.p_vaddr,
                         .offset_bytes = header.p_offset,
                         .file_bytes = header.p_filesz,
                         .executable = (header.p_flags & PF_X) != 0});
  }
  return absl::OkStatus();
}

Result<std::vector<Elf64_Shdr>> ElfFile::read_sections() const {
  if (header_.e_shoff == 0) return absl::NotFoundError("stripped: no section headers");
  if (header_.e_shentsize != sizeof(Elf64_Shdr)) {
    return absl::DataLossError("damaged ELF file: size of a section header");
  }
  Elf64_Shdr first{};
  RETURN_IF_ERROR(read(header_.e_shoff, std::as_writable_bytes(std::span(&first, 1))));
  // Beyond 65,279 sections the count stands in the first one.
  const uint64_t count = header_.e_shnum != 0 ? header_.e_shnum : first.sh_size;
  if (count == 0) return absl::NotFoundError("stripped: no sections");
  if (count > kMaxSections) {
    return absl::ResourceExhaustedError("too large: " + std::to_string(count) + " sections");
  }
  if (!holds(header_.e_shoff, count * sizeof(Elf64_Shdr))) return make_truncated("sections");
  std::vector<Elf64_Shdr> sections(count);
  RETURN_IF_ERROR(read(header_.e_shoff, std::as_writable_bytes(std::span(sections))));
  return sections;
}

size_t ElfFile::section_names_index(const std::vector<Elf64_Shdr>& sections) const {
  // Beyond 65,279 sections the index, too, stands in the first one.
  return header_.e_shstrndx == SHN_XINDEX ? sections.front().sh_link : header_.e_shstrndx;
}

Result<std::string> ElfFile::read_section_names(const std::vector<Elf64_Shdr>& sections) const {
  const size_t index = section_names_index(sections);
  if (index == SHN_UNDEF || index >= sections.size()) return std::string();
  const Elf64_Shdr& section = sections[index];
  if (!holds(section.sh_offset, section.sh_size)) return make_truncated("names of sections");
  if (section.sh_size > kMaxSectionNameBytes) {
    return absl::ResourceExhaustedError("too large: the names of its sections");
  }
  std::string names(section.sh_size, '\0');
  RETURN_IF_ERROR(read(section.sh_offset, std::as_writable_bytes(std::span(names))));
  return names;
}

std::string_view get_section_name(std::string_view names, const Elf64_Shdr& section) {
  if (section.sh_name >= names.size()) return {};
  const std::string_view rest = names.substr(section.sh_name);
  return rest.substr(0, rest.find('\0'));
}

}  // namespace gpuperf
