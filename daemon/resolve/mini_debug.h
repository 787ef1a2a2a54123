#pragma once

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/probe/elf/elf_file.h"
#include "daemon/resolve/debug_facts.h"

namespace gpuperf {

// More is refused, also where expanding it needed more memory than that. It holds one symbol table,
// of which AddressTable takes no more.
inline constexpr uint64_t kMaxMiniDebugBytes = uint64_t{64} << 20;

// Expands .gnu_debugdata, an ELF file compressed by xz that holds a .symtab, into a file that only
// this process sees.
Result<Fd> expand_mini_debug(const ElfFile& file, const SectionBytes& section);

}  // namespace gpuperf
