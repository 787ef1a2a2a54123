#include "daemon/model/cubin_lines.h"

#include <algorithm>
#include <span>

namespace gpuperf {

std::string_view describe(LineFate fate) {
  switch (fate) {
    case LineFate::kKnown:
      return "";
    case LineFate::kWaiting:
      return "the image of their module has not arrived yet";
    case LineFate::kUnseen:
      return "the image of their module is not in the process any more, or was loaded before "
             "gpuperf was there";
    case LineFate::kCompressed:
      return "the image of their module was not found among those that are not compressed (nvcc "
             "-no-compress)";
    case LineFate::kTooLarge:
      return "the image of their module was not found among those of at most 16 MiB";
    case LineFate::kNoRoom:
      return "there is no memory for the lines of their module (limits.memory_mib)";
    case LineFate::kNoLines:
      return "their module has no line table (nvcc -lineinfo makes one)";
    case LineFate::kUnreadable:
      return "the line table of their module is damaged, or of an unknown version";
    case LineFate::kNoLineThere:
      return "the line table of their module says nothing of them";
  }
  return "";
}

const CubinLines::Place* find_place(const CubinLines& lines, std::string_view function,
                                    uint32_t offset_bytes) {
  const auto found =
      std::ranges::lower_bound(lines.functions, function, {}, &CubinLines::Function::name);
  if (found == lines.functions.end() || found->name != function) return nullptr;
  const auto rows = std::span(lines.rows).subspan(found->first_row, found->row_count);
  const auto next = std::ranges::upper_bound(rows, found->offset_bytes + offset_bytes, {},
                                             &CubinLines::Row::offset_bytes);
  if (next == rows.begin() || (next - 1)->place == CubinLines::kNone) return nullptr;
  return &lines.places[(next - 1)->place];
}

uint64_t get_bytes(const CubinLines& lines) {
  uint64_t bytes = sizeof lines + lines.places.size() * sizeof(CubinLines::Place) +
                   lines.rows.size() * sizeof(CubinLines::Row);
  for (const std::string& text : lines.texts) bytes += sizeof text + text.size();
  for (const CubinLines::Function& one : lines.functions) bytes += sizeof one + one.name.size();
  return bytes;
}

}  // namespace gpuperf
