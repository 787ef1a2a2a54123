#pragma once

// Makes small ELF files with an .eh_frame of one function, right ones and wrong ones.

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace gpuperf::frame_file {

using Bytes = std::string;

template <typename T>
Bytes as_bytes(T value) {
  Bytes bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

inline Bytes uleb(uint64_t value) {
  Bytes bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

inline Bytes sleb(int64_t value) {
  Bytes bytes;
  for (; value < -64 || value > 63; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value & 0x7f);
}

inline Bytes block(const Bytes& bytes) { return uleb(bytes.size()) + bytes; }

// DW_CFA_*, by what assemblers call them.
inline Bytes def_cfa(uint64_t reg, uint64_t offset) { return "\x0c" + uleb(reg) + uleb(offset); }
inline Bytes def_cfa_register(uint64_t reg) { return "\x0d" + uleb(reg); }
inline Bytes def_cfa_offset(uint64_t offset) { return "\x0e" + uleb(offset); }
inline Bytes def_cfa_expression(const Bytes& expression) { return "\x0f" + block(expression); }
inline Bytes expression(uint64_t reg, const Bytes& bytes) {
  return "\x10" + uleb(reg) + block(bytes);
}
// At CFA - 8 * `count`.
inline Bytes offset(int reg, uint64_t count) { return bytes_of({0x80 | reg}) + uleb(count); }
inline Bytes restore(int reg) { return bytes_of({0xc0 | reg}); }
inline Bytes advance(int bytes) { return bytes_of({0x40 | bytes}); }
inline Bytes undefined(uint64_t reg) { return "\x07" + uleb(reg); }
inline Bytes same_value(uint64_t reg) { return "\x08" + uleb(reg); }
inline Bytes in_register(uint64_t reg, uint64_t other) { return "\x09" + uleb(reg) + uleb(other); }
inline Bytes remember_state() { return "\x0a"; }
inline Bytes restore_state() { return "\x0b"; }

// DW_OP_breg.
inline Bytes register_plus(int reg, int64_t offset) {
  return bytes_of({0x70 + reg}) + sleb(offset);
}
inline const Bytes kDereference = "\x06";

// What may be wrong or unusual about the file. `build` gives, from offset and vaddr 0 on: headers,
// .eh_frame_hdr, .eh_frame (CIE, FDE, end), code, section headers.
struct FrameFile {
  static constexpr uint64_t kTable = 0x100;
  static constexpr uint64_t kEntries = 0x200;
  static constexpr uint64_t kFunctionBytes = 0x100;

  std::string augmentation = "zR";
  Bytes augmentation_data = "\x1b";  // relative to here, 4 bytes signed
  uint8_t version = 1;
  uint8_t return_address_register = 16;
  int64_t data_alignment = -8;
  Bytes common_program = def_cfa(7, 8) + offset(16, 1);
  Bytes program;

  bool has_program_header = true;
  bool has_table = true;
  bool has_sections = false;
  bool has_end = true;   // entry of length 0
  Bytes entries_before;  // whole entries, before the CIE

  uint64_t program_vaddr() const {
    return kEntries + entries(0).size() - program.size() - (has_end ? 4 : 0);
  }
  uint64_t function() const { return (kEntries + entries(0).size() + 15) / 16 * 16; }
  Bytes build() const;

 private:
  Bytes common_entry() const;
  Bytes entries(uint64_t function) const;
};

inline Bytes entry(const Bytes& bytes) {
  return as_bytes(static_cast<uint32_t>(bytes.size())) + bytes;
}

inline Bytes FrameFile::common_entry() const {
  return entry(as_bytes(uint32_t{0}) + bytes_of({version}) + augmentation + Bytes(1, '\0') +
               uleb(1) + sleb(data_alignment) + bytes_of({return_address_register}) +
               block(augmentation_data) + common_program);
}

inline Bytes FrameFile::entries(uint64_t function) const {
  Bytes bytes = entries_before;
  const auto common = static_cast<uint32_t>(bytes.size());
  bytes += common_entry();
  const auto begin_at = static_cast<uint32_t>(bytes.size() + 8);
  bytes += entry(as_bytes(begin_at - 4 - common) +
                 as_bytes(static_cast<int32_t>(function - kEntries - begin_at)) +
                 as_bytes(static_cast<uint32_t>(kFunctionBytes)) + uleb(0) + program);
  return has_end ? bytes + as_bytes(uint32_t{0}) : bytes;
}

inline Bytes FrameFile::build() const {
  const Bytes unwind = entries(function());
  const uint64_t file_bytes = function() + kFunctionBytes;
  const auto description =
      static_cast<int32_t>(kEntries + entries_before.size() + common_entry().size() - kTable);
  const Bytes table = bytes_of({1, 0x1b, has_table ? 0x03 : 0xff, has_table ? 0x3b : 0xff}) +
                      as_bytes(static_cast<int32_t>(kEntries - kTable - 4)) +
                      as_bytes(uint32_t{1}) + as_bytes(static_cast<int32_t>(function() - kTable)) +
                      as_bytes(description);
  const Bytes names = Bytes("\0.eh_frame\0.names\0", 18);
  const Elf64_Shdr sections[] = {
      {},
      {.sh_name = 1,
       .sh_type = SHT_PROGBITS,
       .sh_addr = kEntries,
       .sh_offset = kEntries,
       .sh_size = unwind.size()},
      {.sh_name = 11, .sh_type = SHT_STRTAB, .sh_offset = file_bytes, .sh_size = names.size()}};
  Elf64_Ehdr header{.e_type = ET_DYN,
                    .e_machine = EM_X86_64,
                    .e_version = EV_CURRENT,
                    .e_phoff = sizeof(Elf64_Ehdr),
                    .e_ehsize = sizeof(Elf64_Ehdr),
                    .e_phentsize = sizeof(Elf64_Phdr),
                    .e_phnum = static_cast<Elf64_Half>(has_program_header ? 2 : 1),
                    .e_shentsize = sizeof(Elf64_Shdr)};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  if (has_sections) {
    header.e_shoff = file_bytes + names.size();
    header.e_shnum = 3;
    header.e_shstrndx = 2;
  }
  const Elf64_Phdr load = {
      .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = file_bytes, .p_memsz = file_bytes};
  const Elf64_Phdr table_header = {
      .p_type = PT_GNU_EH_FRAME, .p_offset = kTable, .p_vaddr = kTable, .p_filesz = table.size()};
  Bytes bytes = as_bytes(header) + as_bytes(load) + as_bytes(table_header);
  bytes.resize(kTable, '\0');
  bytes += table;
  bytes.resize(kEntries, '\0');
  bytes += unwind;
  bytes.resize(file_bytes, '\x90');
  if (!has_sections) return bytes;
  bytes += names;
  for (const Elf64_Shdr& section : sections) bytes += as_bytes(section);
  return bytes;
}

}  // namespace gpuperf::frame_file
