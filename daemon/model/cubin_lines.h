#pragma once

// Which source lines the instructions of a GPU module (a cubin) come from.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpuperf {

// Whether the line of a sampled instruction is known, or why not.
enum class LineFate : uint8_t {
  kKnown,
  kWaiting,      // for the module's image
  kUnseen,       // it was not found in the process
  kCompressed,   // likewise, and the process has compressed ones
  kTooLarge,     // likewise, and the process has ones too large to be sent
  kNoRoom,       // there was no memory left for it
  kNoLines,      // it has no line table
  kUnreadable,   // it, or its line table, is damaged or of an unknown version
  kNoLineThere,  // the line table has no line for the instruction
};
inline constexpr size_t kLineFates = 9;
// For people, of instructions: "their module has no line table". Empty = it is known.
std::string_view describe(LineFate fate);

struct CubinLines {
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Place {
    uint32_t file = kNone;  // of `texts`
    uint32_t line = 0;
    uint32_t function = kNone;  // of `texts`, demangled: that was inlined; kNone = the kernel's own
    uint32_t outer_file = kNone;  // where in the kernel's own code
    uint32_t outer_line = 0;
    bool operator==(const Place&) const = default;
  };
  struct Row {
    uint32_t offset_bytes = 0;
    uint32_t place = kNone;  // of `places`, up to the next row
    bool operator==(const Row&) const = default;
  };
  struct Function {
    std::string name;           // mangled
    uint32_t offset_bytes = 0;  // of the function, in `rows`
    uint32_t first_row = 0;
    uint32_t row_count = 0;
    bool operator==(const Function&) const = default;
  };

  uint64_t cubin_crc = 0;
  LineFate fate = LineFate::kKnown;
  std::vector<std::string> texts;
  std::vector<Place> places;
  std::vector<Row> rows;            // of each function together, by offset
  std::vector<Function> functions;  // by name
  bool operator==(const CubinLines&) const = default;
};

using CubinLinesByCrc = std::map<uint64_t, CubinLines>;

// Null = not known. `function`: mangled.
const CubinLines::Place* find_place(const CubinLines& lines, std::string_view function,
                                    uint32_t offset_bytes);
// Memory that it takes, about.
uint64_t get_bytes(const CubinLines& lines);

}  // namespace gpuperf
