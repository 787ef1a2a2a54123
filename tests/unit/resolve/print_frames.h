#pragma once

// Frames in the messages of failed tests.

#include <ostream>

#include "daemon/model/snapshot.h"

namespace gpuperf {

inline void PrintTo(const StackFrame& frame, std::ostream* out) {
  *out << frame.symbol << "+" << frame.offset_bytes << " of " << frame.module << " at "
       << frame.file << ":" << frame.line << (frame.is_inlined ? " inlined" : "") << " address "
       << frame.address;
}

}  // namespace gpuperf
