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

}  // namespace gpuperf::elf_builder
