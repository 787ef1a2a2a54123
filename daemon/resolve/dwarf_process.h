#pragma once

// The process behind DwarfWorker: the part of the program that runs in it.

#include <sys/types.h>

#include <chrono>
#include <cstddef>

namespace gpuperf {

struct DwarfProcessOptions {
  pid_t parent = 0;  // the daemon
  size_t memory_bytes = 0;
  std::chrono::milliseconds idle{0};
};

// Gives up all rights, then answers requests until the daemon is gone or nothing comes for `idle`.
[[noreturn]] void run_dwarf_process(const DwarfProcessOptions& options);

}  // namespace gpuperf
