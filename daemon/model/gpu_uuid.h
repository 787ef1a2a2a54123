#pragma once

#include <array>
#include <cstdint>

namespace gpuperf {

using GpuUuid = std::array<uint8_t, 16>;  // zero = not known

}  // namespace gpuperf
