#include "daemon/probe/elf/cpp_name.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace gpuperf {
namespace {

constexpr std::string_view kOperator = "operator";
constexpr size_t kNowhere = std::string_view::npos;

bool is_identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The longest operator at the front of `text`, which stands behind "operator".
size_t count_operator_bytes(std::string_view text) {
  constexpr std::string_view kOperators[] = {
      "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]", "<", ">"};
  for (const std::string_view candidate : kOperators) {
    if (text.starts_with(candidate)) return candidate.size();
  }
  return 0;  // the others confuse no bracket
}

// Where the last parameter list and the name begin. One pass; brackets are kept on a stack, since
// template arguments hold expressions with `<` and `>` of their own inside parentheses.
class NameScanner {
 public:
  explicit NameScanner(std::string_view text) : text_(text) {}

  std::string_view scan() {
    for (at_ = 0; at_ < text_.size(); ++at_) step();
    // Identifiers may hold any bytes, brackets and spaces as well: a name behind its parameters.
    const bool has_parameters =
        parameters_ != kNowhere && parameters_ >= name_ && text_.ends_with(')');
    if (!has_parameters) return text_;
    return text_.substr(name_, parameters_ - name_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '(' || c == '[' || c == '{' || c == '<') {
      if (open_.empty() && c == '(') parameters_ = at_;
      open_ += c;
    } else if (c == '>') {
      const bool is_arrow = at_ > 0 && text_[at_ - 1] == '-';
      if (!is_arrow && open_.ends_with('<')) open_.pop_back();
    } else if (c == ')' || c == ']' || c == '}') {
      close(c == ')' ? '(' : c == ']' ? '[' : '{');
    } else if (c == ' ' && open_.empty()) {
      on_space();
    } else if (starts_operator()) {
      // "operator bool": its spaces separate nothing.
      in_operator_ = in_operator_ || open_.empty();
      at_ += kOperator.size() - 1;
      at_ += count_operator_bytes(text_.substr(at_ + 1));
    }
  }

  void close(char opening) {
    while (!open_.empty() && !open_.ends_with(opening)) open_.pop_back();
    if (!open_.empty()) open_.pop_back();
  }

  // The name begins behind the last space of the return type; "f() const::{lambda()#1}" is a name.
  void on_space() {
    const std::string_view rest = text_.substr(at_ + 1);
    if (in_operator_ || rest.starts_with("const::") || rest.starts_with("volatile::") ||
        rest.starts_with("&::") || rest.starts_with("&&::")) {
      return;
    }
    name_ = at_ + 1;
  }

  bool starts_operator() const {
    if (!text_.substr(at_).starts_with(kOperator)) return false;
    if (at_ > 0 && is_identifier(text_[at_ - 1])) return false;
    const size_t end = at_ + kOperator.size();
    return end == text_.size() || !is_identifier(text_[end]);
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::string open_;  // brackets, innermost last
  bool in_operator_ = false;
  size_t name_ = 0;
  size_t parameters_ = kNowhere;
};

std::string_view strip_suffixes(std::string_view text) {
  const size_t clone = text.find(" [clone ");
  if (clone != kNowhere) text = text.substr(0, clone);
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view suffix : {" const", " volatile", " &", " &&"}) {
      if (!text.ends_with(suffix)) continue;
      text.remove_suffix(suffix.size());
      found = true;
    }
  }
  return text;
}

// Takes "<length><identifier>" off the front; false when there is none.
bool take_source_name(std::string_view& text) {
  size_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || bytes == 0 || bytes > text.size() - digits) return false;
  text.remove_prefix(digits + bytes);
  return true;
}

// Takes one part of a nested name off the front: std, an identifier with its tags, a constructor or
// destructor, or an operator that is no conversion.
bool take_simple_part(std::string_view& text) {
  if (text.starts_with("St")) {
    text.remove_prefix(2);
    return true;
  }
  if (text.size() < 2 || text.starts_with("cv")) return false;
  if (std::isdigit(static_cast<unsigned char>(text[0])) != 0) {
    if (!take_source_name(text)) return false;
    while (text.starts_with('B')) {
      text.remove_prefix(1);
      if (!take_source_name(text)) return false;
    }
    return true;
  }
  const bool is_structor = (text[0] == 'C' || text[0] == 'D') && text[1] >= '0' && text[1] <= '3';
  const bool is_operator = std::islower(static_cast<unsigned char>(text[0])) != 0;
  if (!is_structor && !is_operator) return false;
  text.remove_prefix(2);
  return true;
}

// Names that mangling abbreviates: they need not stand in the symbol as such.
bool is_abbreviated(std::string_view identifier) {
  constexpr std::string_view kNames[] = {
      "std",     "allocator",     "basic_string",  "string",   "istream",
      "ostream", "basic_istream", "basic_ostream", "iostream", "basic_iostream"};
  return std::ranges::find(kNames, identifier) != std::end(kNames);
}

}  // namespace

std::string_view find_cpp_name(std::string_view demangled) {
  return NameScanner(strip_suffixes(demangled)).scan();
}

std::string cut_mangled_parameters(std::string_view mangled) {
  constexpr std::string_view kNested = "_ZN";
  if (!mangled.starts_with(kNested)) return {};
  std::string_view rest = mangled.substr(kNested.size());
  rest.remove_prefix(std::min(rest.find_first_not_of("rVKRO"), rest.size()));
  while (!rest.starts_with('E')) {
    if (!take_simple_part(rest)) return {};
  }
  return std::string(mangled.substr(0, mangled.size() - rest.size() + 1)) + 'v';
}

std::string fold_cpp_name(std::string_view name) {
  constexpr std::string_view kTag = "[abi:";
  std::string folded;
  folded.reserve(name.size());
  for (size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i).starts_with(kTag)) {
      const size_t end = name.find(']', i);
      if (end == kNowhere) break;
      i = end;
    } else if (name[i] != ' ') {
      folded += name[i];
    }
  }
  return folded;
}

std::string find_mangled_piece(std::string_view folded_name) {
  std::string_view best;
  size_t depth = 0;
  for (size_t i = 0; i < folded_name.size(); ++i) {
    const char c = folded_name[i];
    if (c == '(' || c == '{' || c == '<') ++depth;
    if ((c == ')' || c == '}' || c == '>') && depth > 0) --depth;
    if (!is_identifier(c)) continue;
    size_t end = i;
    while (end < folded_name.size() && is_identifier(folded_name[end])) ++end;
    const std::string_view identifier = folded_name.substr(i, end - i);
    if (identifier.starts_with(kOperator)) break;  // what follows is an operator or a type
    const bool is_whole = (i == 0 || folded_name[i - 1] != '*') &&
                          (end == folded_name.size() || folded_name[end] != '*');
    i = end - 1;
    if (depth == 0 && is_whole && !is_abbreviated(identifier) && identifier.size() > best.size()) {
      best = identifier;
    }
  }
  return best.empty() ? std::string() : std::to_string(best.size()) + std::string(best);
}

}  // namespace gpuperf
