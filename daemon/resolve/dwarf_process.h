#pragma once

// The process behind DwarfWorker: the part of the program that runs in it.

#include <sys/types.h>

#include <chrono>
#include <cstddef>

namespace gpuperf {

struct DwarfProcessOptions {
  int socket = -1;   // requests come here; closed by the daemon = the end
  pid_t parent = 0;  // the daemon
  size_t memory_bytes = 0;
  std::chrono::milliseconds idle{0};
};

// Gives up all rights, then answers requests until the daemon is gone or nothing comes for `idle`.
// For a process just forked; of the daemon's memory it uses code and the heap only.
[[noreturn]] void run_dwarf_process(const DwarfProcessOptions& options);

}  // namespace gpuperf
