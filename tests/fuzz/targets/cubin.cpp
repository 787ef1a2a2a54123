// Any bytes as the image of a GPU module (daemon/session/cubin_image.h).

#include "daemon/session/cubin_image.h"

#include <span>

#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  const CubinLines lines = read_cubin_lines(std::as_bytes(std::span(bytes)), 1);
  if (lines.rows.size() > 2 * kCubinRowsMax) return "more rows than may be";
  if (lines.fate != LineFate::kKnown && !lines.functions.empty()) return "lines of unknown fate";
  const auto is_text = [&](uint32_t text) {
    return text == CubinLines::kNone || text < lines.texts.size();
  };
  for (const CubinLines::Place& place : lines.places) {
    if (!is_text(place.file) || !is_text(place.function) || !is_text(place.outer_file)) {
      return "a place with a text that is not there";
    }
  }
  for (const CubinLines::Function& function : lines.functions) {
    if (uint64_t{function.first_row} + function.row_count > lines.rows.size()) {
      return "a function with rows that are not there";
    }
    for (const uint32_t offset : {0u, 0x10u, 0x1000u, UINT32_MAX}) {
      (void)find_place(lines, function.name, offset);
    }
  }
  for (const CubinLines::Row& row : lines.rows) {
    if (row.place != CubinLines::kNone && row.place >= lines.places.size()) {
      return "a row with a place that is not there";
    }
  }
  return "";
}

}  // namespace gpuperf::fuzz
