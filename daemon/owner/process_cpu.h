#pragma once

#include <cstdint>

#include "daemon/model/function.h"

namespace gpuperf {

// CPU time a process has used since its start, of all its threads, nanoseconds; 0 when it is gone.
// pid 0: of the whole host. Any thread.
uint64_t read_process_cpu_ns(const ProcessKey& process);

}  // namespace gpuperf
