#pragma once

// Values of the model as text, the same in every export.

#include <string>
#include <string_view>

#include "daemon/model/snapshot.h"

namespace gpuperf {

// `bytes` with every byte that is no valid UTF-8, and NUL, replaced by U+FFFD. A process chooses
// its own name, and one bad byte makes Prometheus refuse a whole scrape and protobuf a whole
// message.
std::string to_valid_utf8(std::string_view bytes);

// "cudaErrorMemoryAllocation" where the function returns a status, else "0x7f00".
std::string format_return_value(const SlowCall& call);

// "cudaLaunchKernel+0x1c", "libfoo.so+0x1c0" without a symbol, "0x7f0012340000" without a module;
// with its source "step+0x1c at train.cpp:12", "clamp (inlined) at train.h:7", "fit at train.py:3".
std::string format_frame(const StackFrame& frame);

// "native", "jit", "kernel", "python".
std::string_view get_frame_kind_name(StackFrameKind kind);

// "attached", "entry_only", "waiting", "symbol_missing", "failed", "disabled",
// "suspended", "alias".
std::string_view get_probe_state_name(ProbeState state);

// "plain", "host_to_host", "host_to_device", "device_to_host", "device_to_device", "default" of a
// GPUPERF_BYTES_* slot.
std::string_view get_direction_name(size_t slot);

}  // namespace gpuperf
