#pragma once

#include "daemon/base/result.h"
#include "daemon/model/tensor_layout.h"

namespace gpuperf {

// Where the fields of ggml's tensors lie in the build of ggml that is this file (libggml-base.so,
// or a program that has it in it): by what its own accessors do, so that no version needs to be
// known.
//
// Errors: NotFound = it does not export them; FailedPrecondition = one of them does something else
// than is known, or they do not fit together: then nothing may be read by them. Else those of
// ElfFile. The file is hostile input; a wrong answer makes the kernel side read memory of the
// processes that map it at the wrong place, and no more.
Result<TensorLayout> read_tensor_layout(int fd);

}  // namespace gpuperf
