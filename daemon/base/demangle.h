#pragma once

#include <string>
#include <string_view>

namespace gpuperf {

// The C++ name behind a mangled one; `name` itself when it is not mangled, longer than
// kMaxMangledBytes, or could expand beyond reason: 230 bytes of nested back references demangle to
// 142 MB in a second, and each further reference doubles that. Any thread.
std::string demangle(std::string_view name);

inline constexpr size_t kMaxMangledBytes = 4'096;

// Upper bound of the times demangling can repeat a part of `name` by its back references; for
// `demangle` and its tests.
double get_expansion_bound(std::string_view name);

}  // namespace gpuperf
