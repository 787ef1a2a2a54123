#pragma once

#include <string>
#include <vector>

#include "client/text.h"

namespace gpuperf::client {

// What the place we print to can show.
struct TextStyle {
  bool terminal = false;
  bool colour = false;
  bool utf8 = false;  // block elements appear as such; "µ" and "…" are taken for granted
  int columns = 0;    // 0 = unlimited
};

enum class Tone { kPlain, kHeader, kGood, kWarning, kBad, kDim };
// The text in the tone's colour, or as it is where the style has none.
std::string paint(std::string_view text, Tone tone, const TextStyle& style);

// One line: the label, padded to `label_width` columns, and the value.
std::string render_labelled(std::string_view label, int label_width, std::string_view value,
                            const TextStyle& style);

struct Column {
  std::string title;
  enum class Align { kLeft, kRight } align = Align::kLeft;
  bool optional = false;  // left out when every cell is empty
  int shrink_to = 0;      // columns it may be cut down to on a narrow terminal; 0 = never cut
  Cut cut = Cut::kEnd;
  int min_width = 0;  // for tables printed row by row, whose later cells are not known yet
};

struct Cell {
  std::string text;  // as the daemon gave it; made printable here. Empty shows as "-"
  Tone tone = Tone::kPlain;
};

// Rows under capital headers, in columns that stay aligned whatever the cells hold.
//
// Thread: one. Owns its cells.
// When full: a cell past kWidestCell, except in the last column, is cut with "…"; on a terminal
// narrower than the table, the columns with `shrink_to` are cut first, and lines wrap only when
// that is not enough.
class Table {
 public:
  static constexpr int kWidestCell =
      120;  // fits long mangled names; one absurd name spoils no line

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void add_row(std::vector<Cell> cells);

  // The header, once, and the rows added since the last call, which are forgotten. Columns only
  // grow from call to call.
  std::string take_text(const TextStyle& style);

 private:
  void measure();
  std::vector<int> fit(const TextStyle& style) const;
  std::string render_line(const std::vector<Cell>& cells, const std::vector<int>& widths,
                          const TextStyle& style) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  std::vector<int> widths_;  // 0 = column left out; empty until the first text
};

}  // namespace gpuperf::client
