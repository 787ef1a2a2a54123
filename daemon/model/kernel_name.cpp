#include "daemon/model/kernel_name.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gpuperf {
namespace {

bool opens(char c) { return c == '<' || c == '(' || c == '{' || c == '['; }
bool closes(char c) { return c == '>' || c == ')' || c == '}' || c == ']'; }

// Without its parameters: the last group of parentheses that is no part of anything else. A name
// such as "(anonymous namespace)::f" keeps its own, because more follows.
std::string_view cut_parameters(std::string_view name) {
  if (name.ends_with(" const")) name.remove_suffix(6);
  if (!name.ends_with(')')) return name;
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (closes(name[i])) ++depth;
    if (opens(name[i]) && --depth == 0) return i == 0 ? name : name.substr(0, i);
  }
  return name;  // not balanced: "operator<" and the like
}

// Without what stands before the name: a return type, which only templates have.
std::string_view cut_return_type(std::string_view name) {
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (closes(name[i])) ++depth;
    if (opens(name[i])) --depth;
    if (depth == 0 && name[i] == ' ') return name.substr(i + 1);
  }
  return name;
}

// One part of a qualified name: "native", "reduce<512>", "f(int)", "{lambda(int)#1}".
struct Part {
  std::string text;          // shortened; of a lambda its parameters, in parentheses
  std::string number;        // of a lambda
  bool is_function = false;  // its parameters, which are left out, stood behind it
  bool has_arguments = false;
};

bool is_anonymous(const Part& part) {
  return part.text.empty() || part.text == "(anonymous namespace)";
}

// Reads a demangled name from left to right. What it does not know it takes over as it is.
class Shortener {
 public:
  explicit Shortener(std::string_view text) : text_(text) {}

  std::string shorten() {
    std::string out;
    while (at_ < text_.size()) {
      out += read_until_close();
      if (at_ < text_.size()) out += text_[at_++];  // not balanced
    }
    return out;
  }

 private:
  bool is_at(std::string_view words) const { return text_.substr(at_).starts_with(words); }

  // Up to what closes the group that it is in, or the end.
  std::string read_until_close() {
    std::string out;
    while (at_ < text_.size() && !closes(text_[at_])) {
      const std::string name = read_name();
      out += name;
      if (at_ >= text_.size() || closes(text_[at_])) break;
      if (!name.empty() && opens(text_[at_])) continue;
      if (opens(text_[at_])) {
        out += read_group();
      } else if (!is_at(" >")) {  // "> >" is ">>"
        out += text_[at_++];
      } else {
        ++at_;
      }
    }
    return out;
  }

  // "<…>", "(…)" or the like, with its brackets.
  std::string read_group() {
    std::string out(1, text_[at_++]);
    out += read_until_close();
    if (at_ < text_.size()) out += text_[at_++];
    return out;
  }

  std::string read_name() {
    std::vector<Part> parts = {{}};
    while (at_ < text_.size()) {
      Part& part = parts.back();
      if (is_at("::")) {
        at_ += 2;
        parts.emplace_back();
      } else if (is_at(" const::") && part.is_function) {
        at_ += 6;
      } else if (part.text.empty() && is_at("(anonymous namespace)::")) {
        part.text = "(anonymous namespace)";
        at_ += part.text.size();
      } else if (part.text.empty() && is_at("{lambda(")) {
        at_ += 7;
        part.text = read_group();
        const size_t end = std::min(text_.find('}', at_), text_.size());
        part.number = text_.substr(at_, end - at_);
        part.number.erase(0, part.number.find_first_not_of('#'));
        at_ = std::min(end + 1, text_.size());
      } else if (part.text.empty() && is_at("operator()")) {
        part.text = "operator()";
        at_ += part.text.size();
      } else if (!part.text.empty() && text_[at_] == '<') {
        part.text += read_group();
        part.has_arguments = true;
      } else if (!part.text.empty() && text_[at_] == '(' && part.number.empty()) {
        read_group();
        part.is_function = true;
      } else if (text_[at_] == ' ' || text_[at_] == ',' || text_[at_] == '*' || text_[at_] == '&' ||
                 opens(text_[at_]) || closes(text_[at_])) {
        break;
      } else {
        part.text += text_[at_++];
      }
    }
    return join(parts);
  }

  // Without namespaces: what has template arguments is a class, and tells its members apart. A
  // function around a local type or lambda is kept, "operator()" for the class or lambda before it.
  static std::string join(const std::vector<Part>& parts) {
    std::string out;
    std::string numbers;
    std::string parameters;  // of the innermost lambda
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      const bool is_last = i + 1 == parts.size();
      const bool calls = !is_last && parts[i + 1].text == "operator()";
      const bool is_around_lambda = !is_last && !parts[i + 1].number.empty();
      if (!part.number.empty()) {
        numbers += (numbers.empty() ? "" : ".") + part.number;
        parameters = part.text;
      } else if (part.text == "operator()" && !is_last && !out.empty()) {
        continue;
      } else if (!is_anonymous(part) &&
                 (is_last || part.is_function || part.has_arguments || calls || is_around_lambda)) {
        out += (out.empty() ? "" : "::") + part.text;
      }
    }
    if (numbers.empty()) return out;
    return (out.empty() ? "lambda" : out) + parameters + "#" + numbers;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

// FNV-1a: labels of metrics stay the same from build to build.
uint32_t hash_name(std::string_view name) {
  uint32_t hash = 0x811c9dc5;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
  return hash;
}

}  // namespace

void cut_kernel_name(std::string& name, size_t bytes) {
  if (name.size() <= bytes) return;
  size_t end = bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
  name.resize(end);
  name += "…";
}

std::string shorten_kernel_name(std::string_view demangled) {
  std::string name = Shortener(cut_return_type(cut_parameters(demangled))).shorten();
  if (name.empty()) name = demangled;
  if (name.size() <= kMaxShortNameBytes) return name;
  const std::string hash = fmt::format("#{:08x}", hash_name(demangled));
  cut_kernel_name(name, kMaxShortNameBytes - hash.size());
  return name + hash;
}

bool is_nccl_kernel(std::string_view name) {
  return name.find("ncclDevKernel") != std::string_view::npos ||
         name.find("ncclSym") != std::string_view::npos ||
         name.find("ncclKernel") != std::string_view::npos;
}

}  // namespace gpuperf
