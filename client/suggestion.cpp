#include "client/suggestion.h"

#include <algorithm>
#include <numeric>

namespace gpuperf::client {
namespace {

constexpr size_t kLongestCompared = 64;  // no name is longer

// Letters to insert, delete or replace.
size_t count_edits(const std::string& one, const std::string& other) {
  std::vector<size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < one.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t k = 0; k < other.size(); ++k) {
      const size_t replaced = diagonal + (one[i] == other[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({replaced, row[k] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string find_nearest(const std::string& word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > kLongestCompared) return "";
  std::string nearest;
  // A third of the letters wrong is another word, except that one wrong letter always counts.
  size_t fewest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t edits = count_edits(word, name);
    if (edits >= fewest || edits >= name.size()) continue;
    nearest = name;
    fewest = edits;
  }
  if (!nearest.empty()) return nearest;
  constexpr size_t kShortestBegin = 3;
  for (const std::string& name : known) {
    if (std::min(word.size(), name.size()) < kShortestBegin) continue;
    if (name.starts_with(word) || word.starts_with(name)) return name;
  }
  return "";
}

}  // namespace gpuperf::client
