#pragma once

// Replaces a library's functions with ours, through the addresses that the process holds.

#include <cstddef>
#include <span>

#include "injector/data_patch.h"

namespace gpuperf::injector {

struct PointerReplacement {
  Word real = 0;  // address of a function of the library
  Word ours = 0;
};

// Replaces each address in the library's dynamic symbols, so that later binding and lookups get
// ours, and in the data of all other modules loaded now (import slots, tables of pointers), except
// CUPTI's. Copies on the heap or on stacks stay. `library`: from dlopen. Takes some milliseconds:
// it reads all data pages that the modules have touched.
void replace_pointers(void* library, std::span<const PointerReplacement> replacements);
// The other way round: each address of ours found there becomes the real one again.
void restore_pointers(void* library, std::span<const PointerReplacement> replacements);

}  // namespace gpuperf::injector
