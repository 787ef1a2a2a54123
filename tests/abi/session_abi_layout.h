#pragma once

/* Layout of injector/session_abi.h as one compiler sees it. */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct field_layout {
  const char* structure;
  const char* field;
  size_t offset_bytes;
  size_t field_bytes;
};

/* As the C compiler sees it, in the order of session_abi_layout.inc. */
extern const struct field_layout kLayoutInC[];
extern const size_t kLayoutInCRows;

#ifdef __cplusplus
}
#endif
