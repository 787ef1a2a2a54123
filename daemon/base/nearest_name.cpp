#include "daemon/base/nearest_name.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace gpuperf {
namespace {

constexpr size_t kComparedMaxBytes = 64;  // longer names are nobody's typing mistake
constexpr size_t kWordMinBytes = 3;       // "log" may stand for "log_level", "l" may not

// Letters to insert, delete, replace or swap with their neighbour to get from one to the other.
size_t count_edits(std::string_view from, std::string_view to) {
  std::array<std::vector<size_t>, 3> rows;  // [0]: two letters back, [1]: one back, [2]: this
  for (auto& row : rows) row.resize(to.size() + 1);
  std::iota(rows[1].begin(), rows[1].end(), 0);
  for (size_t i = 1; i <= from.size(); ++i) {
    rows[2][0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replace = rows[1][j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      rows[2][j] = std::min({rows[1][j] + 1, rows[2][j - 1] + 1, replace});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        rows[2][j] = std::min(rows[2][j], rows[0][j - 2] + 1);
    }
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
  }
  return rows[1][to.size()];
}

// True when `part` stands in `whole` between underscores: "threshold" in "default_threshold_ms".
bool contains_words(std::string_view whole, std::string_view part) {
  for (size_t at = whole.find(part); at != whole.npos; at = whole.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || whole[at - 1] == '_') && (end == whole.size() || whole[end] == '_'))
      return true;
  }
  return false;
}

// The nearest name that is at most so many edits away.
std::optional<std::string_view> find_within(std::string_view name,
                                            std::span<const std::string_view> known,
                                            size_t max_edits) {
  std::optional<std::string_view> nearest;
  size_t fewest = max_edits + 1;
  for (const std::string_view candidate : known) {
    const size_t edits = count_edits(name, candidate);
    if (edits < fewest && edits < candidate.size()) {
      nearest = candidate;
      fewest = edits;
    }
  }
  return nearest;
}

}  // namespace

std::optional<std::string_view> find_nearest_name(std::string_view name,
                                                  std::span<const std::string_view> known) {
  if (name.empty() || name.size() > kComparedMaxBytes) return std::nullopt;
  // A third of the letters wrong is another word, except that one wrong letter always counts.
  const auto nearest = find_within(name, known, std::max<size_t>(1, name.size() / 3));
  if (nearest) return nearest;
  for (const std::string_view candidate : known) {
    if (std::min(name.size(), candidate.size()) < kWordMinBytes) continue;
    if (contains_words(name, candidate) || contains_words(candidate, name) ||
        name.starts_with(candidate) || candidate.starts_with(name))
      return candidate;
  }
  return std::nullopt;
}

std::optional<std::string_view> find_misspelt_name(std::string_view name,
                                                   std::span<const std::string_view> known) {
  constexpr size_t kLongWordBytes = 8;
  if (name.empty() || name.size() > kComparedMaxBytes) return std::nullopt;
  return find_within(name, known, name.size() < kLongWordBytes ? 1 : 2);
}

}  // namespace gpuperf
