#pragma once

#include <cstdint>

namespace gpuperf {

// Of a stream, the graph captured from it and what was instantiated from that.
constexpr uint64_t kStream = 0x500, kGraph = 0x600, kExec = 0x700;

}  // namespace gpuperf
