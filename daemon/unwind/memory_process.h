#pragma once

#include <sys/types.h>

namespace gpuperf {

// The process behind ProcessReader: gives up all rights but that to read the memory of others, then
// answers requests (memory_message.h) until the daemon, `parent`, is gone.
[[noreturn]] void run_memory_process(pid_t parent);

}  // namespace gpuperf
