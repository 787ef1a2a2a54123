#include "daemon/probe/elf/symbol_match.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "daemon/base/demangle.h"
#include "daemon/base/wildcard.h"
#include "daemon/probe/elf/cpp_name.h"
#include "daemon/probe/elf/usdt_notes.h"

namespace gpuperf {
namespace {

// Names may overlap in a hostile file's strings: 4 million symbols with 4 KiB each. 1 GiB takes
// about a second to look at; the 33,000 symbols of libtorch_cpu 1.13 have 2.7 MiB.
constexpr uint64_t kMaxNameBytes = uint64_t{1} << 30;
// Demangling takes about a second for 100 MiB of mangled and demangled text; those of libtorch_cpu
// together are 9 MiB.
constexpr uint64_t kMaxDemangledBytes = uint64_t{128} << 20;

// Compilers put what is rarely run (.cold), or was not inlined with the rest (.part.0), in a symbol
// of its own, which the function itself jumps to or calls.
bool is_piece(std::string_view name) {
  return name.find(".cold") != std::string_view::npos ||
         name.find(".part.") != std::string_view::npos;
}

// Itanium names of functions written by somebody; _ZT and _ZG are tables, guards and thunks.
bool is_cpp_function(std::string_view name) {
  return name.starts_with("_Z") && !name.starts_with("_ZT") && !name.starts_with("_ZG");
}

bool is_deleting_destructor(std::string_view name) {
  return name.substr(0, name.find('.')).ends_with("D0Ev");
}

// One site of a static probe may stand in the notes twice.
void sort_matches(QueryMatches& result) {
  const auto place = [](const SymbolMatch& match) {
    return std::tuple(std::string_view(match.symbol), match.where.file_offset_bytes);
  };
  std::ranges::sort(result.matches, {}, place);
  const auto is_repeated = [&](const SymbolMatch& a, const SymbolMatch& b) {
    return place(a) == place(b);
  };
  result.matches.erase(std::unique(result.matches.begin(), result.matches.end(), is_repeated),
                       result.matches.end());
}

struct Candidate {
  int preference = 0;
  std::string symbol;
  FunctionSymbol where;
};

// A query by pattern and what it has matched.
struct Pattern {
  size_t query = 0;
  SymbolForm form = SymbolForm::kWildcard;
  std::string text;   // demangled ones folded
  std::string piece;  // that every match holds; empty = none known
  std::map<std::string, Candidate, std::less<>> by_name;  // kWildcard
  std::map<uint64_t, Candidate> by_place;                 // kDemangled
  uint64_t left_out_count = 0;
};

template <typename Map, typename Key>
void keep_better(Map& kept, const Key& key, const NamedFunction& function, uint64_t& left_out) {
  const auto known = kept.find(key);
  if (known == kept.end() && kept.size() == kMaxMatches) {
    ++left_out;
    return;
  }
  if (known != kept.end() && known->second.preference >= function.preference) return;
  Candidate candidate{function.preference, std::string(function.name), function.where};
  kept.insert_or_assign(typename Map::key_type(key), std::move(candidate));
}

// Answers the queries that symbol tables answer, table by table, the preferred one first.
class SymbolMatcher {
 public:
  SymbolMatcher(std::span<const SymbolQuery> queries, std::vector<QueryMatches>& results)
      : queries_(queries), results_(results) {
    for (size_t i = 0; i < queries.size(); ++i) {
      const SymbolQuery& query = queries[i];
      if (query.form == SymbolForm::kExact) {
        unanswered_.push_back(i);
      } else if (query.form == SymbolForm::kWildcard) {
        patterns_.push_back({.query = i, .form = query.form, .text = query.symbol});
      } else if (query.form == SymbolForm::kDemangled) {
        patterns_.push_back({.query = i, .form = query.form, .text = fold_cpp_name(query.symbol)});
        patterns_.back().piece = find_mangled_piece(patterns_.back().text);
      }
    }
  }

  // Patterns are held against every name, exact ones looked up.
  ElfSymbols::Names names() const {
    return patterns_.empty() ? ElfSymbols::Names::kLeft : ElfSymbols::Names::kRead;
  }

  // Whether a further table may add anything.
  bool wants_more() const { return !patterns_.empty() || !unanswered_.empty(); }

  Status visit(const ElfSymbols& symbols) {
    find_exact(symbols);
    if (patterns_.empty()) return absl::OkStatus();
    symbols.visit_functions([this](const NamedFunction& function) { return try_on(function); });
    if (name_bytes_ <= kMaxNameBytes && demangled_bytes_ <= kMaxDemangledBytes) {
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError("too large: the names of its functions");
  }

  // Hands the matches of the patterns over.
  void finish() {
    for (Pattern& pattern : patterns_) {
      QueryMatches& result = results_[pattern.query];
      result.left_out_count = pattern.left_out_count;
      for (auto& [name, candidate] : pattern.by_name) take(candidate, result);
      for (auto& [place, candidate] : pattern.by_place) take(candidate, result);
      sort_matches(result);
    }
  }

 private:
  static void take(Candidate& candidate, QueryMatches& result) {
    result.matches.push_back({.symbol = std::move(candidate.symbol), .where = candidate.where});
  }

  void find_exact(const ElfSymbols& symbols) {
    std::vector<std::string> names;
    for (const size_t query : unanswered_) names.push_back(queries_[query].symbol);
    const auto found = symbols.find_all(names);
    std::vector<size_t> still_unanswered;
    for (size_t i = 0; i < names.size(); ++i) {
      const size_t query = unanswered_[i];
      if (found[i]) {
        results_[query].matches = {{.symbol = names[i], .where = *found[i]}};
      } else {
        still_unanswered.push_back(query);
      }
    }
    unanswered_ = std::move(still_unanswered);
  }

  // False when the file's names are more than one may look at.
  bool try_on(const NamedFunction& function) {
    name_bytes_ += function.name.size();
    if (name_bytes_ > kMaxNameBytes) return false;
    if (is_piece(function.name)) return true;
    const bool is_cpp = is_cpp_function(function.name) && !is_deleting_destructor(function.name);
    std::string folded;  // demangled once for all patterns, at the first that wants it
    for (Pattern& pattern : patterns_) {
      if (pattern.form == SymbolForm::kWildcard) {
        if (!matches_wildcard(pattern.text, function.name)) continue;
        keep_better(pattern.by_name, function.name, function, pattern.left_out_count);
      } else if (is_cpp && function.name.find(pattern.piece) != std::string_view::npos) {
        if (folded.empty()) folded = demangle_and_fold(function.name);
        if (demangled_bytes_ > kMaxDemangledBytes) return false;
        if (!matches_wildcard(pattern.text, folded)) continue;
        keep_better(pattern.by_place, function.where.file_offset_bytes, function,
                    pattern.left_out_count);
      }
    }
    return true;
  }

  std::string demangle_and_fold(std::string_view name) {
    std::string demangled = demangle(name);
    if (demangled == name) demangled = demangle(cut_mangled_parameters(name));
    demangled_bytes_ += name.size() + demangled.size();
    return fold_cpp_name(find_cpp_name(demangled));
  }

  const std::span<const SymbolQuery> queries_;
  std::vector<QueryMatches>& results_;
  std::vector<size_t> unanswered_;  // exact ones, by position
  std::vector<Pattern> patterns_;
  uint64_t name_bytes_ = 0;
  uint64_t demangled_bytes_ = 0;
};

Status match_symbol_tables(int fd, SymbolMatcher& matcher, Status* unread) {
  Status statuses[2];  // of .dynsym and .symtab
  for (size_t i = 0; i < 2; ++i) {
    // .symtab only for what .dynsym may not hold: most libraries' is the larger by far.
    if (i == 1 && statuses[0].ok() && !matcher.wants_more()) break;
    const auto table = i == 0 ? ElfSymbols::Tables::kDynamic : ElfSymbols::Tables::kStatic;
    const Result<ElfSymbols> symbols =
        ElfSymbols::load(fd, table, ElfSymbols::kMaxTableBytes, matcher.names());
    statuses[i] = symbols.ok() ? matcher.visit(*symbols) : symbols.status();
  }
  if (!statuses[0].ok() && !statuses[1].ok()) {
    return absl::IsNotFound(statuses[0]) ? statuses[1] : statuses[0];
  }
  for (const Status& status : statuses) {
    if (unread != nullptr && !absl::IsNotFound(status)) unread->Update(status);
  }
  return absl::OkStatus();
}

Status match_usdt(int fd, std::span<const SymbolQuery> queries,
                  std::vector<QueryMatches>& results) {
  ASSIGN_OR_RETURN(const std::vector<UsdtSite> sites, read_usdt_sites(fd));
  for (const UsdtSite& site : sites) {
    const std::string symbol = site.provider + ":" + site.name;
    for (size_t i = 0; i < queries.size(); ++i) {
      if (queries[i].form != SymbolForm::kUsdt) continue;
      if (!matches_wildcard(queries[i].symbol, symbol)) continue;
      if (results[i].matches.size() == kMaxMatches) {
        ++results[i].left_out_count;
        continue;
      }
      results[i].matches.push_back({.symbol = symbol,
                                    .where = {.file_offset_bytes = site.file_offset_bytes},
                                    .semaphore_offset_bytes = site.semaphore_offset_bytes});
    }
  }
  for (QueryMatches& result : results) sort_matches(result);
  return absl::OkStatus();
}

}  // namespace

Result<std::vector<QueryMatches>> match_symbols(int fd, std::span<const SymbolQuery> queries,
                                                Status* unread) {
  std::vector<QueryMatches> results(queries.size());
  const auto is_usdt = [](const SymbolQuery& query) { return query.form == SymbolForm::kUsdt; };
  if (std::ranges::any_of(queries, is_usdt)) {
    RETURN_IF_ERROR(match_usdt(fd, queries, results));
    if (std::ranges::all_of(queries, is_usdt)) return results;
  }
  SymbolMatcher matcher(queries, results);
  RETURN_IF_ERROR(match_symbol_tables(fd, matcher, unread));
  matcher.finish();
  return results;
}

}  // namespace gpuperf
