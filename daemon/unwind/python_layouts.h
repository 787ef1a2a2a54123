#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "bpf/python_layouts.h"
#include "bpf/records.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Where a CPython up to 3.12 has what is read; nullopt = not one of 3.8 to 3.12.
std::optional<gpuperf_python_layout> find_python_layout(uint16_t version);

// The beginning of the table that _PyRuntime begins with since 3.13: python_decode_table.
using PythonDebugOffsets = std::array<__u64, PYTHON_TABLE_WORDS>;

// Whether `offsets` begin as such a table does.
bool is_python_debug_offsets(const PythonDebugOffsets& offsets);

// The layout that a table describes, every offset checked to lie within its structure. Errors:
// Unimplemented = a version, or a free-threaded build, whose table or frames are not known;
// DataLoss = no such table, or implausible offsets in it.
Result<gpuperf_python_layout> decode_python_debug_offsets(const PythonDebugOffsets& offsets);

// "3.11"
std::string describe_python_version(uint16_t version);

}  // namespace gpuperf
