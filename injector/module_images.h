#pragma once

// The images that modules of this process were loaded from: where they were in memory.
//
// Only addresses are kept, as the process passed them to the driver; nothing is read in its calls.
// A later reader must expect anything there: the image, another one, or no memory. Images of
// binaries lie in mapped files and stay; those that a compiler made at run time stay where their
// owner keeps them (Triton does).
//
// Bound: the kModuleImages that were loaded last.

#include <cstddef>
#include <cstdint>

#include "injector/data_patch.h"

namespace gpuperf::injector {

constexpr size_t kModuleImages = 4096;

// Thread: any. Never blocks.
void note_module_image(Word address);
// How many were noted so far.
uint64_t count_module_images();
// The address that was noted as number `index`, from 0; of the last kModuleImages only.
uint64_t get_module_image(uint64_t index);

}  // namespace gpuperf::injector
