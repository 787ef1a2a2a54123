#pragma once

// Changes words of data in this process: slots that hold the addresses of functions, entries of
// symbol tables. Code is never written, nor anything near it.
//
// Thread: one at a time.

#include <cstdint>

namespace gpuperf::injector {

using Word = uint64_t;

// A mapping of this process: the last one that was looked up, so that words in one page cost one
// look.
struct Mapping {
  uintptr_t start = 0;
  uintptr_t end = 0;
  int protection = 0;  // PROT_*
};

// Stores `value` in one aligned word, which other threads may read at any time. A page that is
// read-only is made writable for that moment and protected again. False: not aligned, not mapped,
// executable, or the kernel refused.
bool write_word(Word* word, Word value, Mapping& mapping);

}  // namespace gpuperf::injector
