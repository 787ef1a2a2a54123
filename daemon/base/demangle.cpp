#include "daemon/base/demangle.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>

namespace gpuperf {
namespace {

// Output of at most a few MB in the worst case, for a name of any length: the bound is of
// repetitions, and one byte of a mangled name becomes at most some 70 ("Ss", the standard string).
constexpr double kMaxExpandedBytes = 1 << 20;

bool is_mangled(std::string_view name) { return name.starts_with("_Z"); }

}  // namespace

// A back reference S<id>_ repeats a part of the name that ended before the id was first used; that
// part may hold all references before, so its size is at most everything so far: a new id may
// double the whole, a known one adds what it added the first time. T<n>_ repeats a template
// argument, whose end is not known without parsing: each may double. Dp repeats a pattern for every
// element of a pack, of which there may be as many as the name has bytes. Unit: the length of the
// name.
double get_expansion_bound(std::string_view name) {
  double total = 1;
  std::map<std::string_view, double> parts;  // by id
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    if (name[i] == 'D' && name[i + 1] == 'p') total *= static_cast<double>(name.size());
    if (name[i] != 'S' && name[i] != 'T') continue;
    size_t end = i + 1;
    while (end < name.size() && std::isalnum(static_cast<unsigned char>(name[end])) &&
           !std::islower(static_cast<unsigned char>(name[end]))) {
      ++end;
    }
    if (end == name.size() || name[end] != '_') continue;
    if (name[i] == 'T') {
      total *= 2;
    } else {
      total += parts.try_emplace(name.substr(i, end - i), total).first->second;
    }
  }
  return total;
}

std::string demangle(std::string_view name) {
  std::string plain(name);
  if (!is_mangled(name) || name.size() > kMaxMangledBytes) return plain;
  if (get_expansion_bound(name) * static_cast<double>(name.size()) > kMaxExpandedBytes)
    return plain;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(plain.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : plain;
}

}  // namespace gpuperf
