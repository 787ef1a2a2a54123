#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/model/stack.h"
#include "daemon/unwind/process_memory.h"
#include "daemon/unwind/python_runtime.h"

namespace gpuperf {

// States of threads that a search looks at: bounded by what ProcessReader may take, too.
inline constexpr size_t kMaxPythonThreads = 32'768;

// The frames of Python that a thread runs, innermost first, at most GPUPERF_PYTHON_FRAMES; by the
// same steps as the kernel side (bpf/python_frames.h). Empty when it runs none, or its state cannot
// be found. True only while the thread stands still, in a call of C code; else wrong or short.
// `thread_pointer`: its fs base.
std::vector<PythonFrame> walk_python(const PythonRuntime& python, uint64_t thread_pointer,
                                     const ReadMemory& read);

}  // namespace gpuperf
