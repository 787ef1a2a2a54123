#include "injector/session_abi.h"
#include "session_abi_layout.h"

const struct field_layout kLayoutInC[] = {
#define X(structure, field, offset, size) \
  {#structure, #field, offsetof(struct structure, field), sizeof(((struct structure*)0)->field)},
#include "session_abi_layout.inc"
#undef X
};
const size_t kLayoutInCRows = sizeof(kLayoutInC) / sizeof(kLayoutInC[0]);
