#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "daemon/base/byte_lru.h"

namespace gpuperf {

// Whose a process is: who started it, asked of /proc once while it lives.
//
// Thread: one. Bounds: kMaxProcesses are remembered, 100 bytes each; the others are asked for
// again.
class ProcessUsers {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kGone = UINT32_MAX;  // it ended before anybody asked
  static constexpr size_t kMaxProcesses = 4'096;

  explicit ProcessUsers(std::string proc_root = "/proc") : proc_root_(std::move(proc_root)) {}

  // `start_boot_ns` 0 = of whichever process has that pid now.
  uint32_t find(uint32_t pid, uint64_t start_boot_ns);

 private:
  const std::string proc_root_;
  ByteLru<std::pair<uint32_t, uint64_t>, uint32_t> known_{kMaxProcesses};
};

}  // namespace gpuperf
