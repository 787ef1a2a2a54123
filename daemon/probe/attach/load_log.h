#pragma once

#include <bpf/libbpf.h>

#include <cstdarg>

#include "daemon/base/result.h"

// libbpf's own words about the load in progress on this thread, kept for the error.
//
// Thread: any, each for itself.
namespace gpuperf {

// For libbpf_set_print.
int keep_load_message(libbpf_print_level level, const char* format, va_list arguments);
void begin_load_log();
// Why the load failed, with what the verifier said last.
Status explain_load_failure(int error_number);

}  // namespace gpuperf
