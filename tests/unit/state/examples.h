#pragma once

#include <cstdint>

#include "daemon/model/function.h"

namespace gpuperf {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kNowNs = 1'000 * kSecondNs;
const ProcessKey kProcess{.pid = 71, .start_boot_ns = 5};
const Owner kPython{.comm = "python"};

inline ProcessKey make_process(uint32_t pid) { return {.pid = pid, .start_boot_ns = pid * 10ull}; }

}  // namespace gpuperf
