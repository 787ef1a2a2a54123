#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "bpf/records.h"
#include "daemon/base/result.h"

namespace gpuperf {

// As of the CPython C API: 3.11 is 0x030b.
inline constexpr uint16_t kOldestPython = 0x0308;
inline constexpr uint16_t kNewestPython = 0x030f;
// From here on _PyRuntime begins with a table that describes the build.
inline constexpr uint16_t kFirstSelfDescribingPython = 0x030d;

// Where a CPython up to 3.12 has what is read; nullopt = not one of 3.8 to 3.12.
std::optional<gpuperf_python_layout> find_python_layout(uint16_t version);

// The beginning of that table, struct _Py_DebugOffsets, as 64-bit words. Derived: the last word
// used is the 93rd, in 3.15.
using PythonDebugOffsets = std::array<uint64_t, 96>;

// Whether `offsets` begin as such a table does.
bool is_python_debug_offsets(const PythonDebugOffsets& offsets);

// The layout that a table describes, every offset checked to lie within its structure. Errors:
// Unimplemented = a version, or a free-threaded build, whose table or frames are not known;
// DataLoss = no such table, or implausible offsets in it.
Result<gpuperf_python_layout> decode_python_debug_offsets(const PythonDebugOffsets& offsets);

// "3.11"
std::string describe_python_version(uint16_t version);

}  // namespace gpuperf
