#pragma once

#include <optional>
#include <vector>

#include "daemon/model/snapshot.h"
#include "daemon/model/stack.h"
#include "daemon/resolve/code_address.h"

namespace gpuperf {

// Where the interpreter's evaluation function lies, for Pythons that do not say in which C frame an
// evaluation stands (before 3.11): there each of that function's frames is one frame of Python.
struct EvaluationCode {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Puts frames of Python in the place of the interpreter's frames that evaluate them. `groups` and
// `names` belong to `native` and `python`, one by one. Frames of Python that no native frame is
// known for, because the native stack ends early, come last. Several interpreters used by one
// thread (each with its frames behind the other's in `python`) find their places by entry_sp.
std::vector<StackFrame> merge_stacks(const std::vector<NativeFrame>& native,
                                     std::vector<FrameGroup> groups,
                                     const std::vector<PythonFrame>& python,
                                     std::vector<StackFrame> names,
                                     const std::optional<EvaluationCode>& evaluation);

}  // namespace gpuperf
