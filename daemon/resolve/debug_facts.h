#pragma once

// What a file's section headers say about where the names of its code are, and which file it is.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/probe/discovery/file_opener.h"
#include "daemon/probe/elf/elf_file.h"

namespace gpuperf {

// The bytes of a section in its file.
struct SectionBytes {
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;  // 0 = there is none
};

// A name with what the file of that name must have.
struct DebugLink {
  std::string name;  // empty = none
  uint32_t crc32 = 0;
};
struct AlternateLink {
  std::string path;  // empty = none
  std::string build_id;
};

struct DebugFacts {
  std::string build_id;  // raw bytes; empty = none
  uint64_t layout = 0;   // digest of segments and sections
  bool has_symtab = false;
  bool has_dwarf = false;  // functions and lines, no more than kMaxDwarfBytes
  DebugLink link;
  AlternateLink alternate;
  SectionBytes mini_debug;  // an ELF file compressed by xz
};

// The DWARF of larger files is not read: indexing it would take too long.
inline constexpr uint64_t kMaxDwarfBytes = uint64_t{512} << 20;

// Fails as ElfFile does; damaged or overlong notes and links count as none.
Result<DebugFacts> read_debug_facts(const ElfFile& file);

// Which code a file holds, for sharing what was read of it among its copies, in containers for
// example: build id, owner, size and layout. A build id can be forged, by whoever may write a file
// that others then run, or who wants to have functions of others misnamed in reports: the owner
// keeps unprivileged users from that. A file without build id is only itself.
struct CodeIdentity {
  std::string build_id;
  uint32_t owner_uid = 0;
  uint64_t size_bytes = 0;
  uint64_t layout = 0;
  FileIdentity file;  // all zero with a build id
  auto operator<=>(const CodeIdentity&) const = default;
};

// Of an opened file.
CodeIdentity read_code_identity(const OpenedFile& opened);

}  // namespace gpuperf
