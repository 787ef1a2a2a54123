#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gpuperf {

struct Confinement {
  pid_t parent = 0;
  size_t memory_bytes = 0;               // private memory beyond what the process has now
  const char* name = "";                 // of the process, at most 15 bytes
  uint64_t capabilities = 0;             // by bit: those it keeps of those it has
  std::span<const unsigned> more_calls;  // system calls beside those of reading
  std::optional<unsigned> open_flags;    // it may open files, with exactly these flags
};

// Takes from a worker all it does not need to turn the bytes of requests and of descriptors it is
// sent into answers: user and capabilities, memory without end, core files, every system call but
// those of reading, memory and messages (others fail with EPERM). It dies with the thread that
// started it. False when any of that is refused: do not go on then.
bool confine(const Confinement& confinement);

}  // namespace gpuperf
