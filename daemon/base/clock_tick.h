#pragma once

#include <cstdint>

namespace gpuperf {

// What /proc counts start times of processes in: USER_HZ is 100 on every x86-64 kernel, whatever HZ
// it was built with.
inline constexpr uint64_t kTickNs = 10'000'000;

}  // namespace gpuperf
