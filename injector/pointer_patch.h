#pragma once

// Replaces a library's functions with ours, through the addresses that the process holds.

#include <dlfcn.h>

#include <cstddef>
#include <span>

#include "injector/data_patch.h"

namespace gpuperf::injector {

struct PointerReplacement {
  Word real = 0;  // address of a function of the library
  Word ours = 0;
};

// Writes a replacement for each of `calls`, with members name, real and ours, that the driver has,
// and sets *real. Returns how many.
template <typename Call, size_t kCount>
size_t list_replacements(void* driver, const Call (&calls)[kCount],
                         std::span<PointerReplacement> replacements) {
  size_t count = 0;
  for (const Call& call : calls) {
    void* const real = dlsym(driver, call.name);
    if (real == nullptr) continue;  // not in this driver
    *call.real = reinterpret_cast<decltype(call.ours)>(real);
    replacements[count++] = {reinterpret_cast<Word>(real), reinterpret_cast<Word>(call.ours)};
  }
  return count;
}

// Replaces each address in the library's dynamic symbols, so that later binding and lookups get
// ours, and in the data of all other modules loaded now (import slots, tables of pointers), except
// CUPTI's. Copies on the heap or on stacks stay. `library`: from dlopen. Takes some milliseconds:
// it reads all data pages that the modules have touched.
void replace_pointers(void* library, std::span<const PointerReplacement> replacements);
// The other way round: each address of ours found there becomes the real one again.
void restore_pointers(void* library, std::span<const PointerReplacement> replacements);

}  // namespace gpuperf::injector
