#pragma once

/* The recorded layouts hold for the compiler of C, of C++ and of BPF C that includes this. A
 * contract was appended to: cmake --build build --target record_layouts. */

#include <linux/types.h>

#include "bpf/hook_notes.h"
#include "bpf/records.h"
#include "injector/attach_abi.h"
#include "injector/session_abi.h"

#define STRUCT(structure, size) GPUPERF_ASSERT(sizeof(struct structure) == size);
#define FIELD(structure, field, offset, size)                             \
  GPUPERF_ASSERT(__builtin_offsetof(struct structure, field) == offset && \
                 sizeof(((struct structure*)0)->field) == size);
#include "layouts.inc"
#undef FIELD
#undef STRUCT
