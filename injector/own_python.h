#pragma once

#include <cstdint>

#include "bpf/stack_records.h"

namespace gpuperf::injector {

// The CPython in this process.
struct OwnPython {
  uint64_t runtime;  // address of _PyRuntime
  // Form GPUPERF_PYTHON_NONE: a Python whose frames are unknown, of this version if that is known.
  gpuperf_python_layout layout;
  void* (*find_thread)();  // PyGILState_GetThisThreadState: the calling thread's PyThreadState
};

// Null = none, as far as symbols tell: a Python that exports nothing is not seen. Once found, it
// stays and is never unloaded; until then each call looks again. Thread: within cuInit or the
// injector's own, one at a time, never a hook: it asks the dynamic linker, which takes its locks.
const OwnPython* find_own_python();

}  // namespace gpuperf::injector
