#pragma once

// Puts functions of ours in the place of a library's, by the addresses that the process holds.

#include <cstddef>
#include <span>

#include "injector/data_patch.h"

namespace gpuperf::injector {

struct PointerReplacement {
  Word real = 0;  // address of a function of the library
  Word ours = 0;
};

// Replaces each address in the library's dynamic symbols, so that who binds or looks it up from now
// on gets ours, and in the data of all other modules that are loaded now (import slots, tables of
// pointers), CUPTI's excepted. Copies on the heap or on stacks stay. `library`: of dlopen. Takes
// some milliseconds: it reads all data pages that the modules have touched.
void replace_pointers(void* library, std::span<const PointerReplacement> replacements);

}  // namespace gpuperf::injector
