#include "daemon/probe/elf/elf_exports.h"

#include <algorithm>
#include <span>
#include <string>

namespace gpuperf {
namespace {

constexpr uint64_t kBloomBits = 64;

// As the linker hashes names for SHT_GNU_HASH.
uint32_t hash_name(std::string_view name) {
  uint32_t hash = 5381;
  for (const char letter : name) hash = hash * 33 + static_cast<unsigned char>(letter);
  return hash;
}

}  // namespace

template <typename T>
Result<T> ElfExports::read_entry(const Elf64_Shdr& section, uint64_t offset_bytes) const {
  if (section.sh_size < sizeof(T) || offset_bytes > section.sh_size - sizeof(T)) {
    return absl::DataLossError("damaged ELF file: hash table of its exports");
  }
  T entry{};
  RETURN_IF_ERROR(
      file_->read(section.sh_offset + offset_bytes, std::as_writable_bytes(std::span(&entry, 1))));
  return entry;
}

Result<ElfExports> ElfExports::open(const ElfFile& file, const std::vector<Elf64_Shdr>& sections) {
  const auto hashes = std::ranges::find(sections, Elf64_Word{SHT_GNU_HASH}, &Elf64_Shdr::sh_type);
  if (hashes == sections.end()) return absl::NotFoundError("no hash table of exports");
  ElfExports exports(file);
  exports.hashes_ = *hashes;
  if (hashes->sh_link >= sections.size()) {
    return absl::DataLossError("damaged ELF file: hash table without its symbols");
  }
  exports.symbols_ = sections[hashes->sh_link];
  if (exports.symbols_.sh_link >= sections.size()) {
    return absl::DataLossError("damaged ELF file: symbol table without its string table");
  }
  exports.names_ = sections[exports.symbols_.sh_link];
  for (const Elf64_Shdr* section : {&exports.hashes_, &exports.symbols_, &exports.names_}) {
    if (!file.holds(section->sh_offset, section->sh_size)) {
      return absl::DataLossError("truncated or damaged ELF file: symbols lie beyond its end");
    }
  }
  ASSIGN_OR_RETURN(exports.head_, exports.read_entry<Head>(exports.hashes_, 0));
  if (exports.head_.bucket_count == 0 || exports.head_.bloom_count == 0 ||
      exports.head_.bloom_shift >= 32) {
    return absl::DataLossError("damaged ELF file: hash table of its exports");
  }
  return exports;
}

Result<std::optional<SymbolPlace>> ElfExports::read_symbol(uint64_t index,
                                                           std::string_view name) const {
  ASSIGN_OR_RETURN(const Elf64_Sym symbol,
                   read_entry<Elf64_Sym>(symbols_, index * sizeof(Elf64_Sym)));
  if (symbol.st_shndx == SHN_UNDEF || names_.sh_size < name.size() + 1 ||
      symbol.st_name > names_.sh_size - name.size() - 1) {
    return std::nullopt;
  }
  std::string found(name.size() + 1, '\0');
  RETURN_IF_ERROR(
      file_->read(names_.sh_offset + symbol.st_name, std::as_writable_bytes(std::span(found))));
  if (found.back() != '\0' || !found.starts_with(name)) return std::nullopt;
  return SymbolPlace{.vaddr = symbol.st_value, .size_bytes = symbol.st_size};
}

Result<std::optional<SymbolPlace>> ElfExports::find(std::string_view name) const {
  const uint32_t hash = hash_name(name);
  const uint64_t bloom_word = (hash / kBloomBits) % head_.bloom_count;
  ASSIGN_OR_RETURN(const uint64_t bloom,
                   read_entry<uint64_t>(hashes_, sizeof(Head) + bloom_word * sizeof(uint64_t)));
  const uint64_t wanted = uint64_t{1} << (hash % kBloomBits) |
                          uint64_t{1} << ((hash >> head_.bloom_shift) % kBloomBits);
  if ((bloom & wanted) != wanted) return std::nullopt;
  const uint64_t buckets = sizeof(Head) + uint64_t{head_.bloom_count} * sizeof(uint64_t);
  const uint64_t chain = buckets + uint64_t{head_.bucket_count} * sizeof(uint32_t);
  ASSIGN_OR_RETURN(
      const uint32_t first,
      read_entry<uint32_t>(hashes_, buckets + (hash % head_.bucket_count) * sizeof(uint32_t)));
  if (first < head_.first_symbol) return std::nullopt;  // an empty bucket
  for (uint64_t index = first; index < first + kMaxBucketSymbols; ++index) {
    ASSIGN_OR_RETURN(
        const uint32_t entry,
        read_entry<uint32_t>(hashes_, chain + (index - head_.first_symbol) * sizeof(uint32_t)));
    if ((entry | 1) == (hash | 1)) {
      ASSIGN_OR_RETURN(const std::optional<SymbolPlace> place, read_symbol(index, name));
      if (place) return place;
    }
    if ((entry & 1) != 0) return std::nullopt;  // the bucket's last
  }
  return absl::ResourceExhaustedError("too large: hash table of its exports");
}

}  // namespace gpuperf
