#include "daemon/base/demangle.h"

#include <cxxabi.h>
#include <libiberty/demangle.h>

#include <algorithm>
#include <cctype>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace gpuperf {
namespace {

// Output of at most a few MB in the worst case, for a name of any length: the bound is of
// repetitions, and one byte of a mangled name becomes at most some 70 ("Ss", the standard string).
constexpr double kMaxExpandedBytes = 1 << 20;
// The bound of a C++ name is far above what most come to: PyTorch's kernels are estimated at up to
// 19 MB and are 2 KB long. Up to this, demangling is tried, and given up at kMaxPlainBytes of
// output; what takes time without output stays below half a second by the same bound.
constexpr double kMaxTriedBytes = 1 << 26;
constexpr size_t kMaxPlainBytes = size_t{1} << 18;

bool is_mangled(std::string_view name) { return name.starts_with("_Z"); }

// Rust's older mangling is a C++ name that ends in a hash, "17h<16 hexadecimal digits>E".
bool is_old_rust(std::string_view name) {
  constexpr std::string_view kHash = "17h0123456789abcdefE";
  if (!name.starts_with("_ZN") || name.size() < kHash.size() + 3 || !name.ends_with('E')) {
    return false;
  }
  const std::string_view hash = name.substr(name.size() - kHash.size());
  return hash.starts_with("17h") && std::ranges::all_of(hash.substr(3, 16), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_new_rust(std::string_view name) {
  return name.size() > 2 && name.starts_with("_R") && name[2] >= 'A' && name[2] <= 'Z';
}

// The number "<base 62>_" whose digits begin at `at`: "_" is 0, "0_" is 1, large ones are cut.
std::optional<uint64_t> parse_rust_number(std::string_view name, size_t at) {
  constexpr uint64_t kMaxNumber = uint64_t{1} << 50;
  uint64_t value = 0;
  for (size_t i = at; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '_') return i == at ? 0 : value + 1;
    if (!std::isalnum(static_cast<unsigned char>(c))) break;
    const int digit = c <= '9' ? c - '0' : c >= 'a' ? c - 'a' + 10 : c - 'A' + 36;
    value = std::min(value * 62 + static_cast<uint64_t>(digit), kMaxNumber);
  }
  return std::nullopt;
}

void append(const char* text, size_t bytes, void* plain) {
  static_cast<std::string*>(plain)->append(text, bytes);
}

struct BoundedText {
  std::string text;
  std::jmp_buf too_long;
};

// Leaves the demangler where the text would become too long. It is C that keeps all it has on the
// stack, so nothing is lost on the way.
void append_bounded(const char* text, size_t bytes, void* bounded) {
  auto& plain = *static_cast<BoundedText*>(bounded);
  if (plain.text.size() + bytes > kMaxPlainBytes) std::longjmp(plain.too_long, 1);
  plain.text.append(text, bytes);
}

// Empty when it is none, or too long.
std::string demangle_bounded(const std::string& name) {
  BoundedText plain;
  plain.text.reserve(kMaxPlainBytes);  // so that appending never throws through the demangler
  if (setjmp(plain.too_long) != 0) return {};
  constexpr int kOptions = DMGL_PARAMS | DMGL_ANSI | DMGL_TYPES;
  if (cplus_demangle_v3_callback(name.c_str(), kOptions, &append_bounded, &plain) == 0) return {};
  return plain.text;
}

// Empty when it is none.
std::string demangle_rust(const std::string& name) {
  std::string plain;
  return rust_demangle_callback(name.c_str(), 0, &append, &plain) != 0 ? plain : std::string();
}

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

// A back reference repeats what stands from its place in the name up to itself at most, with all
// that this was expanded to: bytes[i] is the size of the first i bytes, expanded. The rest becomes
// at most 16 bytes for one ("NC" is "{closure#0}"); "G<number>_" becomes so many lifetimes.
double get_rust_expansion_bytes(std::string_view name) {
  constexpr double kBytesEach = 16;
  constexpr size_t kPrefixBytes = 2;  // "_R": references count from behind it
  std::vector<double> bytes(name.size() + 1);
  for (size_t i = 0; i < name.size(); ++i) {
    bytes[i + 1] = bytes[i] + kBytesEach;
    if (name[i] != 'B' && name[i] != 'G') continue;
    const std::optional<uint64_t> number = parse_rust_number(name, i + 1);
    if (!number) continue;
    if (name[i] == 'G') {
      bytes[i + 1] += kBytesEach * static_cast<double>(*number);
    } else if (*number + kPrefixBytes < i) {
      bytes[i + 1] += bytes[i] - bytes[*number + kPrefixBytes];
    }
  }
  return bytes.back();
}

std::string demangle(std::string_view name) {
  std::string plain(name);
  if (name.size() > kMaxMangledBytes) return plain;
  if (is_new_rust(name)) {
    if (get_rust_expansion_bytes(name) > kMaxExpandedBytes) return plain;
    std::string rust = demangle_rust(plain);
    return rust.empty() ? plain : rust;
  }
  if (!is_mangled(name)) return plain;
  if (is_old_rust(name)) {
    // A C++ function may be named like that, too.
    std::string rust = demangle_rust(plain);
    if (!rust.empty()) return rust;
  }
  const double bound_bytes = get_expansion_bound(name) * static_cast<double>(name.size());
  if (bound_bytes > kMaxTriedBytes) return plain;
  if (bound_bytes > kMaxExpandedBytes) {
    std::string bounded = demangle_bounded(plain);
    return bounded.empty() ? plain : bounded;
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(plain.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : plain;
}

}  // namespace gpuperf
