#pragma once

// Reads .debug_line of a cubin: DWARF 2 to 4, with NVIDIA's extension for inlined functions.
//
// ptxas writes version 2 for -lineinfo, one program for each unit with a sequence for each
// function. Bytes are not trusted: nothing outside them is read, there are at most as many rows as
// bytes, and 4 MiB of paths.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpuperf {

struct LineRow {
  uint64_t address = 0;
  uint32_t file = 0;  // of `files`
  uint32_t line = 0;
  uint32_t context = 0;          // the row, from 1, that it was inlined into; 0 = it was not
  uint64_t function_offset = 0;  // in .debug_str: the function that was inlined
  bool operator==(const LineRow&) const = default;
};

// Ends where `end_address` says.
struct LineSequence {
  size_t address_at = 0;  // where the section has its start, which a relocation may replace
  uint64_t end_address = 0;
  std::vector<LineRow> rows;
  bool operator==(const LineSequence&) const = default;
};

struct LineUnit {
  std::vector<std::string> files;  // by number; the first is empty
  std::vector<LineSequence> sequences;
  bool operator==(const LineUnit&) const = default;
};

// Reads on until `rows_max` rows were read. Nullopt = damaged, or another version.
std::optional<std::vector<LineUnit>> read_line_units(std::span<const std::byte> section,
                                                     size_t rows_max);

}  // namespace gpuperf
