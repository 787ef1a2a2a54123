#pragma once

#include <string>
#include <string_view>

namespace gpuperf {

// The C++ or Rust name behind a mangled one; `name` itself when it is not mangled, longer than
// kMaxMangledBytes, or could expand beyond reason: 230 bytes of nested back references demangle to
// 142 MB in a second, and each further reference doubles that. Rust: both manglings, without the
// hash that ends the older one. Any thread.
std::string demangle(std::string_view name);

inline constexpr size_t kMaxMangledBytes = 4'096;

// Upper bounds for `demangle` and its tests. Of a C++ name: of the times demangling can repeat a
// part of `name` by its back references.
double get_expansion_bound(std::string_view name);
// Of a Rust name of the newer mangling ("_R…"): of the bytes it demangles to.
double get_rust_expansion_bytes(std::string_view name);

}  // namespace gpuperf
