#include "daemon/probe/elf/usdt_notes.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "daemon/probe/elf/elf_file.h"

namespace gpuperf {
namespace {

// What a note says, as it lies in the file: systemtap's wiki, "UserSpaceProbeImplementation".
struct NoteAddresses {
  uint64_t pc;
  uint64_t base;  // where .stapsdt.base was when the note was written: prelink moves both
  uint64_t semaphore;
};
constexpr uint32_t kNoteType = 3;
constexpr std::string_view kNoteOwner("stapsdt\0", 8);
constexpr std::string_view kBaseSection = ".stapsdt.base";

// The file offset of an address; nullopt outside the segments of that kind.
std::optional<uint64_t> find_offset(const ElfFile& file, uint64_t vaddr, bool executable) {
  for (const LoadSegment& segment : file.segments()) {
    if (segment.executable != executable || vaddr < segment.vaddr) continue;
    const uint64_t distance = vaddr - segment.vaddr;
    if (distance < segment.file_bytes) return segment.offset_bytes + distance;
  }
  return std::nullopt;
}

// Takes text up to its zero off the front; nullopt without one.
std::optional<std::string_view> take_text(std::string_view& bytes) {
  const size_t length = bytes.find('\0');
  if (length == std::string_view::npos) return std::nullopt;
  const std::string_view text = bytes.substr(0, length);
  bytes.remove_prefix(length + 1);
  return text;
}

class SiteReader {
 public:
  SiteReader(const ElfFile& file, std::optional<uint64_t> base_vaddr)
      : file_(file), base_vaddr_(base_vaddr) {}

  Status read_notes(std::string_view bytes) {
    while (bytes.size() >= sizeof(Elf64_Nhdr)) {
      Elf64_Nhdr header{};
      std::memcpy(&header, bytes.data(), sizeof header);
      bytes.remove_prefix(sizeof header);
      const uint64_t owner_bytes = (uint64_t{header.n_namesz} + 3) / 4 * 4;
      const uint64_t text_bytes = (uint64_t{header.n_descsz} + 3) / 4 * 4;
      // The last note's padding may be missing.
      if (owner_bytes > bytes.size() || header.n_descsz > bytes.size() - owner_bytes) break;
      const std::string_view owner = bytes.substr(0, header.n_namesz);
      if (header.n_type == kNoteType && owner == kNoteOwner) {
        if (sites_.size() == kMaxUsdtSites) {
          return absl::ResourceExhaustedError("too large: more than " +
                                              std::to_string(kMaxUsdtSites) + " static probes");
        }
        add_site(bytes.substr(owner_bytes, header.n_descsz));
      }
      bytes.remove_prefix(std::min<uint64_t>(owner_bytes + text_bytes, bytes.size()));
    }
    return absl::OkStatus();
  }
  std::vector<UsdtSite> take_sites() { return std::move(sites_); }

 private:
  void add_site(std::string_view note) {
    NoteAddresses addresses{};
    if (note.size() < sizeof addresses) return;
    std::memcpy(&addresses, note.data(), sizeof addresses);
    note.remove_prefix(sizeof addresses);
    const auto provider = take_text(note);
    const auto name = take_text(note);
    if (!provider || !name) return;
    const uint64_t moved_by = base_vaddr_ ? *base_vaddr_ - addresses.base : 0;
    const auto place = find_offset(file_, addresses.pc + moved_by, true);
    if (!place) return;
    UsdtSite site{.provider = std::string(*provider),
                  .name = std::string(*name),
                  .file_offset_bytes = *place};
    if (addresses.semaphore != 0) {
      const auto semaphore = find_offset(file_, addresses.semaphore + moved_by, false);
      // Without its semaphore the probe would never be reached.
      if (!semaphore) return;
      site.semaphore_offset_bytes = *semaphore;
    }
    sites_.push_back(std::move(site));
  }

  const ElfFile& file_;
  const std::optional<uint64_t> base_vaddr_;
  std::vector<UsdtSite> sites_;
};

// The bytes of a section, within what is left of `budget_bytes`.
Result<std::string> read_section(const ElfFile& file, const Elf64_Shdr& section,
                                 uint64_t& budget_bytes) {
  if (!file.holds(section.sh_offset, section.sh_size)) {
    return absl::DataLossError("truncated or damaged ELF file: notes lie beyond its end");
  }
  if (section.sh_size > budget_bytes) {
    return absl::ResourceExhaustedError("too large: its notes of static probes");
  }
  budget_bytes -= section.sh_size;
  std::string bytes(section.sh_size, '\0');
  RETURN_IF_ERROR(file.read(section.sh_offset, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

// Where the loader puts .stapsdt.base; nullopt without one.
std::optional<uint64_t> find_base_vaddr(const std::vector<Elf64_Shdr>& sections,
                                        std::string_view names) {
  for (const Elf64_Shdr& section : sections) {
    if (get_section_name(names, section) == kBaseSection) return section.sh_addr;
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<UsdtSite>> read_usdt_sites(int fd) {
  ASSIGN_OR_RETURN(const ElfFile file, ElfFile::open(fd));
  const Result<std::vector<Elf64_Shdr>> sections = file.read_sections();
  if (absl::IsNotFound(sections.status())) return std::vector<UsdtSite>();
  RETURN_IF_ERROR(sections.status());
  ASSIGN_OR_RETURN(const std::string names, file.read_section_names(*sections));
  uint64_t budget_bytes = kMaxUsdtNoteBytes;
  SiteReader reader(file, find_base_vaddr(*sections, names));
  for (const Elf64_Shdr& section : *sections) {
    if (section.sh_type != SHT_NOTE) continue;
    ASSIGN_OR_RETURN(const std::string notes, read_section(file, section, budget_bytes));
    RETURN_IF_ERROR(reader.read_notes(notes));
  }
  return reader.take_sites();
}

}  // namespace gpuperf
