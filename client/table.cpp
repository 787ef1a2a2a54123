#include "client/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>

namespace gpuperf::client {
namespace {

constexpr int kGap = 2;

std::string_view find_escape(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kHeader:
      return "\x1b[1m";
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kWarning:
      return "\x1b[33m";
    case Tone::kBad:
      return "\x1b[31m";
    case Tone::kDim:
      return "\x1b[2m";
  }
  return "";
}

}  // namespace

std::string render_labelled(std::string_view label, int label_width, std::string_view value,
                            const TextStyle& style) {
  const std::string blanks(static_cast<size_t>(label_width) - label.size(), ' ');
  return fmt::format("{}{}{}\n", paint(label, Tone::kHeader, style), blanks, value);
}

std::string paint(std::string_view text, Tone tone, const TextStyle& style) {
  const std::string_view escape = find_escape(tone);
  if (!style.colour || escape.empty()) return std::string(text);
  return std::string(escape) + std::string(text) + "\x1b[0m";
}

void Table::add_row(std::vector<Cell> cells) {
  assert(cells.size() == columns_.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].text = make_printable(cells[i].text);
    const bool last = i + 1 == cells.size();  // nothing behind it to push aside
    if (!last) cells[i].text = truncate(cells[i].text, kWidestCell, columns_[i].cut);
  }
  rows_.push_back(std::move(cells));
}

void Table::measure() {
  const bool first = widths_.empty();
  if (first) widths_.resize(columns_.size(), 0);
  for (size_t i = 0; i < columns_.size(); ++i) {
    const bool filled = std::any_of(rows_.begin(), rows_.end(),
                                    [i](const auto& row) { return !row[i].text.empty(); });
    const bool left_out = columns_[i].optional && !filled;
    if (first && !left_out) {
      widths_[i] = std::max(measure_width(columns_[i].title), columns_[i].min_width);
    }
    if (widths_[i] == 0) continue;
    for (const auto& row : rows_) widths_[i] = std::max(widths_[i], measure_width(row[i].text));
  }
}

std::vector<int> Table::fit(const TextStyle& style) const {
  std::vector<int> widths = widths_;
  const auto shown = std::count_if(widths.begin(), widths.end(), [](int w) { return w > 0; });
  int total = std::accumulate(widths.begin(), widths.end(), 0) + kGap * static_cast<int>(shown - 1);
  while (style.columns > 0 && total > style.columns) {
    int* widest = nullptr;
    for (size_t i = 0; i < widths.size(); ++i) {
      const int floor = std::max(columns_[i].shrink_to, measure_width(columns_[i].title));
      if (columns_[i].shrink_to == 0 || widths[i] <= floor) continue;
      if (widest == nullptr || widths[i] > *widest) widest = &widths[i];
    }
    if (widest == nullptr) break;
    --*widest;
    --total;
  }
  return widths;
}

std::string Table::render_line(const std::vector<Cell>& cells, const std::vector<int>& widths,
                               const TextStyle& style) const {
  std::string line;
  int owed_blanks = 0;  // not written at the end of a line
  for (size_t i = 0; i < cells.size(); ++i) {
    if (widths[i] == 0) continue;
    const std::string whole = cells[i].text.empty() ? "-" : cells[i].text;
    const std::string text = truncate(whole, widths[i], columns_[i].cut);
    const int blanks = widths[i] - measure_width(text);
    const bool right = columns_[i].align == Column::Align::kRight;
    if (!line.empty()) owed_blanks += kGap;
    if (right) owed_blanks += blanks;
    line.append(static_cast<size_t>(owed_blanks), ' ');
    line += paint(text, cells[i].tone, style);
    owed_blanks = right ? 0 : blanks;
  }
  line += '\n';
  return line;
}

std::string Table::take_text(const TextStyle& style) {
  const bool first = widths_.empty();
  measure();
  const std::vector<int> widths = fit(style);
  std::string text;
  if (first) {
    std::vector<Cell> header;
    for (const Column& column : columns_) header.push_back({column.title, Tone::kHeader});
    text += render_line(header, widths, style);
  }
  for (const auto& row : rows_) text += render_line(row, widths, style);
  rows_.clear();
  return text;
}

}  // namespace gpuperf::client
