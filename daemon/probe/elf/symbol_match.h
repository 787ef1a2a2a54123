#pragma once

// Which functions of a file a symbol of the configuration means, in each of its forms.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/probe/elf/elf_symbols.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

struct SymbolQuery {
  SymbolForm form = SymbolForm::kExact;
  std::string symbol;  // as the configuration spells it
  bool operator==(const SymbolQuery&) const = default;
};

struct SymbolMatch {
  std::string
      symbol;  // as the file spells it, without its version; of a USDT probe "provider:name"
  FunctionSymbol where;                 // of a USDT probe the nop to probe, whose size is not known
  uint64_t semaphore_offset_bytes = 0;  // USDT: ref_ctr_offset of the uprobe; 0 = has none
  bool operator==(const SymbolMatch&) const = default;
};

struct QueryMatches {
  std::vector<SymbolMatch> matches;  // by name, then by place
  uint64_t left_out_count = 0;       // further ones, beyond kMaxMatches
  bool operator==(const QueryMatches&) const = default;
};
// The whole API of the CUDA runtime, cuBLAS, cuDNN and NCCL together is some 3,000 functions.
inline constexpr size_t kMaxMatches = 4'096;

// Answers every query, in their order, with one pass over the symbol tables.
//   kExact       one match at most; ElfSymbols::find_all says which of several.
//   kWildcard    every typed function whose name, without its version, matches; one match per name.
//                Pieces of functions (foo.cold, foo.part.0) are not functions.
//   kDemangled   every typed function whose demangled name, without return type, parameters,
//                qualifiers and [abi:…] tags, equals the symbol or matches its `*`: overloads, and
//                the complete and base constructors; one match per place. Spaces do not matter.
//                Left out, because they run the function itself: thunks and deleting destructors.
//   kUsdt        every site of the static probe; `*` allowed in either part.
// Aliases (several names at one place) are several matches of a wildcard.
// Fails when `fd` is no ELF file, or when it has no readable symbol table and the queries need one;
// NotFound = stripped. `unread`, where given, says why one table could not be read that may hold
// what is missing. The file is hostile input: see ElfFile and ElfSymbols. Any thread.
Result<std::vector<QueryMatches>> match_symbols(int fd, std::span<const SymbolQuery> queries,
                                                Status* unread = nullptr);

}  // namespace gpuperf
