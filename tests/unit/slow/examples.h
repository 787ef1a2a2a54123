#pragma once

#include <cstdint>

#include "daemon/model/function.h"

namespace gpuperf {

constexpr uint64_t kMs = 1'000'000;
constexpr ProcessKey kProcess = {.pid = 71, .start_boot_ns = 5'000'000'123};

}  // namespace gpuperf
