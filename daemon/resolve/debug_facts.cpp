#include "daemon/resolve/debug_facts.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace gpuperf {
namespace {

constexpr size_t kMinBuildIdBytes = 4;
constexpr size_t kMaxBuildIdBytes = 64;  // 20 of SHA-1 are usual
// Links are paths; notes of a build id have 16 bytes more than it.
constexpr uint64_t kMaxSmallSectionBytes = 8'192;

// FNV-1a: tells layouts apart that differ by accident, which is all it is for.
void add_to_digest(uint64_t& digest, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    digest = (digest ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
}

template <typename T>
void add_all_to_digest(uint64_t& digest, const std::vector<T>& values) {
  add_to_digest(digest, std::as_bytes(std::span(values)));
}

// Empty when it is too large, or not in the file.
std::string read_small_section(const ElfFile& file, const Elf64_Shdr& section) {
  if (section.sh_type == SHT_NOBITS || section.sh_size > kMaxSmallSectionBytes) return {};
  std::string bytes(section.sh_size, '\0');
  const Status read = file.read(section.sh_offset, std::as_writable_bytes(std::span(bytes)));
  return read.ok() ? bytes : std::string();
}

// The build id of a section of notes; empty when none of them is one.
std::string find_build_id(std::string_view notes) {
  constexpr std::string_view kOwner("GNU\0", 4);
  const auto align = [](uint64_t bytes) { return (bytes + 3) / 4 * 4; };
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr header;
    std::memcpy(&header, notes.data(), sizeof header);
    notes.remove_prefix(sizeof header);
    const uint64_t name_bytes = align(header.n_namesz);
    const uint64_t bytes = name_bytes + header.n_descsz;
    if (bytes > notes.size()) return {};
    if (header.n_type == NT_GNU_BUILD_ID && notes.substr(0, header.n_namesz) == kOwner &&
        header.n_descsz >= kMinBuildIdBytes && header.n_descsz <= kMaxBuildIdBytes) {
      return std::string(notes.substr(name_bytes, header.n_descsz));
    }
    notes.remove_prefix(std::min<uint64_t>(name_bytes + align(header.n_descsz), notes.size()));
  }
  return {};
}

// ".gnu_debuglink": a name, zeroes up to a multiple of 4, a checksum.
DebugLink parse_link(std::string_view bytes) {
  const size_t name_bytes = bytes.find('\0');
  if (name_bytes == std::string_view::npos) return {};
  const size_t crc_at = name_bytes / 4 * 4 + 4;
  DebugLink link;
  if (crc_at > bytes.size() || bytes.size() - crc_at < sizeof link.crc32) return {};
  std::memcpy(&link.crc32, bytes.data() + crc_at, sizeof link.crc32);
  link.name = bytes.substr(0, name_bytes);
  // A plain name: the folders are the finder's choice.
  const bool is_plain = link.name.find('/') == std::string::npos && link.name != "..";
  return is_plain ? link : DebugLink();
}

// ".gnu_debugaltlink": a path, then the build id of the file there.
AlternateLink parse_alternate(std::string_view bytes) {
  const size_t path_bytes = bytes.find('\0');
  if (path_bytes == std::string_view::npos) return {};
  const std::string_view id = bytes.substr(path_bytes + 1);
  if (id.size() < kMinBuildIdBytes || id.size() > kMaxBuildIdBytes) return {};
  return {.path = std::string(bytes.substr(0, path_bytes)), .build_id = std::string(id)};
}

// Collects the sections' facts one by one.
class FactsReader {
 public:
  explicit FactsReader(const ElfFile& file) : file_(file) {}

  void take(std::string_view name, const Elf64_Shdr& section) {
    if (section.sh_type == SHT_NOBITS || !file_.holds(section.sh_offset, section.sh_size)) return;
    if (section.sh_type == SHT_SYMTAB) facts_.has_symtab = true;
    if (name.starts_with(".debug_")) dwarf_bytes_ += section.sh_size;
    if (name == ".debug_info") has_functions_ = true;
    if (name == ".debug_line") has_lines_ = true;
    if (section.sh_type == SHT_NOTE && facts_.build_id.empty()) {
      facts_.build_id = find_build_id(read_small_section(file_, section));
    }
    if (name == ".gnu_debuglink") facts_.link = parse_link(read_small_section(file_, section));
    if (name == ".gnu_debugaltlink") {
      facts_.alternate = parse_alternate(read_small_section(file_, section));
    }
    if (name == ".gnu_debugdata") facts_.mini_debug = {section.sh_offset, section.sh_size};
  }

  DebugFacts finish(uint64_t layout) {
    facts_.layout = layout;
    facts_.has_dwarf = has_functions_ && has_lines_ && dwarf_bytes_ <= kMaxDwarfBytes;
    return std::move(facts_);
  }

 private:
  const ElfFile& file_;
  DebugFacts facts_;
  uint64_t dwarf_bytes_ = 0;
  bool has_functions_ = false;
  bool has_lines_ = false;
};

}  // namespace

Result<DebugFacts> read_debug_facts(const ElfFile& file) {
  ASSIGN_OR_RETURN(const std::vector<Elf64_Shdr> sections, file.read_sections());
  ASSIGN_OR_RETURN(const std::string names, file.read_section_names(sections));
  FactsReader reader(file);
  for (const Elf64_Shdr& section : sections) reader.take(get_section_name(names, section), section);
  uint64_t layout = 0xcbf29ce484222325;
  for (const LoadSegment& segment : file.segments()) {
    const uint64_t numbers[] = {segment.vaddr, segment.offset_bytes, segment.file_bytes,
                                uint64_t{segment.executable}};
    add_to_digest(layout, std::as_bytes(std::span(numbers)));
  }
  add_all_to_digest(layout, sections);
  return reader.finish(layout);
}

CodeIdentity read_code_identity(const OpenedFile& opened) {
  struct stat found {};
  const Result<ElfFile> file = ElfFile::open(opened.fd.get());
  if (!file.ok() || ::fstat(opened.fd.get(), &found) != 0) return {.file = opened.identity};
  Result<DebugFacts> facts = read_debug_facts(*file);
  if (!facts.ok() || facts->build_id.empty()) return {.file = opened.identity};
  return {.build_id = std::move(facts->build_id),
          .owner_uid = found.st_uid,
          .size_bytes = file->size_bytes(),
          .layout = facts->layout};
}

}  // namespace gpuperf
