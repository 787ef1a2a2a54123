#include "client/top_state.h"

#include <algorithm>
#include <functional>

namespace gpuperf::client {
namespace {

constexpr size_t kPageRows = 10;
constexpr size_t kLongestFilter = 64;

struct Sort {
  std::string name;
  double (*value)(const FunctionRate& rate);
};

const std::vector<Sort>& list_sorts() {
  static const std::vector<Sort> sorts = {
      {"time", [](const FunctionRate& rate) { return rate.time_ratio; }},
      {"calls", [](const FunctionRate& rate) { return rate.calls_per_second; }},
      {"errors", [](const FunctionRate& rate) { return rate.errors_per_second; }},
      {"avg", [](const FunctionRate& rate) { return static_cast<double>(rate.avg_ns); }},
      {"p99", [](const FunctionRate& rate) { return static_cast<double>(rate.p99_ns); }},
      {"bytes", [](const FunctionRate& rate) { return rate.bytes_per_second; }},
      {"oldest",
       [](const FunctionRate& rate) { return static_cast<double>(rate.oldest_in_flight_ns); }}};
  return sorts;
}

void edit_filter(TopState& state, const Key& key) {
  switch (key.kind) {
    case KeyKind::kCharacter:
      if (state.filter.size() < kLongestFilter) state.filter += key.character;
      break;
    case KeyKind::kBackspace:
      if (!state.filter.empty()) state.filter.pop_back();
      break;
    case KeyKind::kEscape:
      state.filter.clear();
      state.is_filtering = false;
      break;
    case KeyKind::kEnter:
      state.is_filtering = false;
      break;
    case KeyKind::kUp:
    case KeyKind::kDown:
    case KeyKind::kPageUp:
    case KeyKind::kPageDown:
      break;
  }
  state.selected = 0;
}

void apply_character(TopState& state, char character, size_t rows) {
  const size_t sorts = list_sorts().size();
  switch (character) {
    case 'q':
      state.quits = true;
      break;
    case 's':
      state.sort = (state.sort + 1) % sorts;
      break;
    case 'S':
      state.sort = (state.sort + sorts - 1) % sorts;
      break;
    case '/':
      state.is_filtering = true;
      break;
    case 'j':
      if (state.selected + 1 < rows) ++state.selected;
      break;
    case 'k':
      if (state.selected > 0) --state.selected;
      break;
    default:
      break;
  }
}

}  // namespace

const std::vector<std::string>& list_top_sorts() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (const Sort& sort : list_sorts()) made.push_back(sort.name);
    return made;
  }();
  return names;
}

void apply_key(TopState& state, const Key& key, const std::vector<FunctionRate>& shown) {
  if (state.is_filtering) return edit_filter(state, key);
  const size_t last = shown.empty() ? 0 : shown.size() - 1;
  switch (key.kind) {
    case KeyKind::kCharacter:
      return apply_character(state, key.character, shown.size());
    case KeyKind::kUp:
      return apply_character(state, 'k', shown.size());
    case KeyKind::kDown:
      return apply_character(state, 'j', shown.size());
    case KeyKind::kPageUp:
      state.selected -= std::min(state.selected, kPageRows);
      return;
    case KeyKind::kPageDown:
      state.selected = std::min(state.selected + kPageRows, last);
      return;
    case KeyKind::kEnter:
      if (state.opened.has_value() || state.selected >= shown.size()) return;
      state.opened.emplace(shown[state.selected].category, shown[state.selected].function);
      state.selected = 0;
      return;
    case KeyKind::kEscape:
    case KeyKind::kBackspace:
      if (state.opened.has_value()) {
        state.opened.reset();
      } else {
        state.filter.clear();
      }
      state.selected = 0;
      return;
  }
}

FunctionRates arrange(const FunctionRates& rates, const TopState& state) {
  FunctionRates arranged = rates;
  std::erase_if(arranged.functions, [&](const FunctionRate& rate) {
    return !state.opened.has_value() && rate.function.find(state.filter) == std::string::npos &&
           rate.category.find(state.filter) == std::string::npos;
  });
  const Sort& sort = list_sorts()[state.sort];
  std::ranges::stable_sort(arranged.functions, std::greater(), sort.value);
  return arranged;
}

}  // namespace gpuperf::client
