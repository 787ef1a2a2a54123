#pragma once

#include <sys/types.h>

#include <cstddef>

namespace gpuperf {

struct Confinement {
  int kept_fd = -1;    // the only descriptor kept beside standard input, output and error,
  int fd_number = -1;  // under this number
  pid_t parent = 0;
  size_t memory_bytes = 0;  // private memory beyond what the process has now
  const char* name = "";    // of the process, at most 15 bytes
};

// Takes from a process just forked all it does not need to turn the bytes of descriptors it is sent
// into answers: user and capabilities, files, memory without end, core files, every system call but
// those of reading, memory and messages (others fail with EPERM). It dies with the thread that
// forked it. False when any of that is refused: do not go on then.
bool confine(const Confinement& confinement);

}  // namespace gpuperf
