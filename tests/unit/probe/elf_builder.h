#pragma once

// Makes small ELF files in memory, correct ones and wrong ones.

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/base/fd.h"

namespace gpuperf::elf_builder {

// A regular file that only this process sees.
inline Fd make_file(const std::string& bytes) {
  Fd fd(memfd_create("elf", MFD_CLOEXEC));
  if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("write to a memfd");
  }
  return fd;
}

struct Symbol {
  std::string name;
  uint64_t vaddr = 0;
  uint64_t size_bytes = 0;
  unsigned char type = STT_FUNC;
  unsigned char binding = STB_GLOBAL;
  uint16_t section = 1;
};

// The file: header, one program header, code at kCodeOffset, symbols, strings, section headers
// (none, symbols, strings). Change any of the parts, then `build`.
class ElfImage {
 public:
  static constexpr uint64_t kCodeVaddr = 0x401000;
  static constexpr uint64_t kCodeOffset = 0x200;
  static constexpr uint64_t kCodeBytes = 0x400;

  explicit ElfImage(const std::vector<Symbol>& wanted, Elf64_Word table_type = SHT_SYMTAB) {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_phoff = sizeof(Elf64_Ehdr);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    header.e_shentsize = sizeof(Elf64_Shdr);
    segment = {.p_type = PT_LOAD,
               .p_flags = PF_R | PF_X,
               .p_offset = kCodeOffset,
               .p_vaddr = kCodeVaddr,
               .p_filesz = kCodeBytes,
               .p_memsz = kCodeBytes};
    symbols.resize(1);
    for (const Symbol& symbol : wanted) {
      symbols.push_back(
          {.st_name = static_cast<Elf64_Word>(strings.size()),
           .st_info = static_cast<unsigned char>(ELF64_ST_INFO(symbol.binding, symbol.type)),
           .st_shndx = symbol.section,
           .st_value = symbol.vaddr,
           .st_size = symbol.size_bytes});
      strings += symbol.name;
      strings += '\0';
    }
    const uint64_t symbols_offset = kCodeOffset + kCodeBytes;
    const uint64_t strings_offset = symbols_offset + symbols.size() * sizeof(Elf64_Sym);
    sections.resize(3);
    sections[1] = {.sh_type = table_type,
                   .sh_offset = symbols_offset,
                   .sh_size = symbols.size() * sizeof(Elf64_Sym),
                   .sh_link = 2,
                   .sh_entsize = sizeof(Elf64_Sym)};
    sections[2] = {.sh_type = SHT_STRTAB, .sh_offset = strings_offset, .sh_size = strings.size()};
    header.e_shoff = (strings_offset + strings.size() + 7) / 8 * 8;
    header.e_shnum = 3;
  }

  std::string build() const {
    std::string bytes(kCodeOffset + kCodeBytes, '\x90');
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &segment, sizeof segment);
    append(bytes, symbols.data(), symbols.size() * sizeof(Elf64_Sym));
    bytes += strings;
    bytes.resize((bytes.size() + 7) / 8 * 8, '\0');
    append(bytes, sections.data(), sections.size() * sizeof(Elf64_Shdr));
    return bytes;
  }

  Elf64_Ehdr header{};
  Elf64_Phdr segment{};
  std::vector<Elf64_Sym> symbols;
  std::string strings = std::string(1, '\0');
  std::vector<Elf64_Shdr> sections;

 private:
  static void append(std::string& bytes, const void* data, size_t size_bytes) {
    bytes.append(static_cast<const char*>(data), size_bytes);
  }
};

// As the linker hashes names.
inline uint32_t hash_name(const std::string& name) {
  uint32_t hash = 5381;
  for (const char letter : name) hash = hash * 33 + static_cast<unsigned char>(letter);
  return hash;
}

// The table of SHT_GNU_HASH for the image's symbols: all in one bucket, every name passes its
// filter.
inline std::vector<uint32_t> make_hash_table(const ElfImage& image) {
  constexpr uint32_t kBuckets = 1, kFirstSymbol = 1, kBloomWords = 1, kBloomShift = 6;
  std::vector<uint32_t> table{kBuckets,   kFirstSymbol, kBloomWords, kBloomShift,
                              UINT32_MAX, UINT32_MAX,   kFirstSymbol};
  for (size_t i = kFirstSymbol; i < image.symbols.size(); ++i) {
    const std::string name = image.strings.c_str() + image.symbols[i].st_name;
    const uint32_t is_last = i + 1 == image.symbols.size() ? 1 : 0;
    table.push_back((hash_name(name) & ~1U) | is_last);
  }
  return table;
}

// The file with one more section, of `content`, and its headers moved behind that. `section`: type,
// links and name.
inline std::string append_section(ElfImage& image, Elf64_Shdr section, const std::string& content) {
  section.sh_offset = image.header.e_shoff;
  section.sh_size = content.size();
  image.sections.push_back(section);
  image.header.e_shnum = static_cast<Elf64_Half>(image.sections.size());
  std::string bytes = image.build().substr(0, section.sh_offset) + content;
  bytes.resize((bytes.size() + 7) / 8 * 8, '\0');
  image.header.e_shoff = bytes.size();
  std::memcpy(bytes.data(), &image.header, sizeof image.header);
  bytes.append(reinterpret_cast<const char*>(image.sections.data()),
               image.sections.size() * sizeof(Elf64_Shdr));
  return bytes;
}

// A library that exports `symbols`, with their hash table.
inline std::string make_library(const std::vector<Symbol>& symbols) {
  ElfImage image(symbols, SHT_DYNSYM);
  const std::vector<uint32_t> table = make_hash_table(image);
  return append_section(
      image, {.sh_type = SHT_GNU_HASH, .sh_link = 1},
      std::string(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(uint32_t)));
}

}  // namespace gpuperf::elf_builder
