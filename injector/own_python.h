#pragma once

#include <cstdint>

#include "bpf/stack_records.h"

namespace gpuperf::injector {

// The CPython in this process.
struct OwnPython {
  uint64_t runtime;  // address of _PyRuntime
  // Form GPUPERF_PYTHON_NONE: there is a Python whose frames are not known, of this version, if
  // that is known.
  gpuperf_python_layout layout;
  void* (*find_thread)();  // PyGILState_GetThisThreadState: the calling thread's PyThreadState
};

// Null = none, as far as symbols tell: one that exports nothing is not seen. Found once, it stays
// and is never unloaded; before, each call looks anew. Within cuInit or on the injector's own
// thread, one at a time, never from a hook: it asks the dynamic linker, which takes its locks.
const OwnPython* find_own_python();

}  // namespace gpuperf::injector
