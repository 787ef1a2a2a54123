#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gpuperf {

// The line of a code object's instruction, as Python itself computes it (PyCode_Addr2Line).
// `table`: co_lnotab up to 3.9, co_linetable from 3.10 on. `instruction_bytes`: from the first
// instruction on; below 0, of a frame that has not begun, gives the first line. nullopt = the table
// gives that instruction no line, or ends before it.
std::optional<uint32_t> find_python_line(uint16_t version, std::span<const std::byte> table,
                                         uint32_t first_line, int32_t instruction_bytes);

}  // namespace gpuperf
