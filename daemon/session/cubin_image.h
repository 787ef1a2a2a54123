#pragma once

// The image of a GPU module (a cubin, an ELF file) -> the source lines of its instructions.
//
// A cubin has a section .text.NAME for each kernel, all at address 0; which one a part of the line
// table is about is said by relocations. nvcc -lineinfo makes the table, and Triton always.
// Bytes are not trusted: nothing outside them is read. Bounds: kCubinRowsMax rows; what is beyond
// them has no lines. Its time is in proportion to the image.

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/model/cubin_lines.h"

namespace gpuperf {

constexpr size_t kCubinRowsMax = 262'144;

CubinLines read_cubin_lines(std::span<const std::byte> image, uint64_t cubin_crc);

}  // namespace gpuperf
