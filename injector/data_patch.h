#pragma once

// Changes words of data in this process: slots that hold function addresses, symbol table entries.
// Never writes code or anything near it.
//
// Thread: one at a time.

#include <cstdint>

namespace gpuperf::injector {

using Word = uint64_t;

// A mapping of this process: the last one looked up, so that words in one page cost one lookup.
struct Mapping {
  uintptr_t start = 0;
  uintptr_t end = 0;
  int protection = 0;  // PROT_*
};

// Stores `value` in one aligned word, which other threads may read at any time. A read-only page is
// made writable for the store, then protected again. False: not aligned, not mapped, executable, or
// the kernel refused.
bool write_word(Word* word, Word value, Mapping& mapping);

}  // namespace gpuperf::injector
