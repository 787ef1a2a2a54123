#pragma once

#include "daemon/unwind/python_layouts.h"

namespace gpuperf {

// A table with the offsets of 3.13.5, as far as it is read.
inline PythonDebugOffsets make_python_313_offsets() {
  PythonDebugOffsets offsets{};
  offsets[0] = 0x7970677562656478;  // "xdebugpy"
  offsets[1] = 0x030d05f0;
  const auto put = [&offsets](size_t first_word, std::initializer_list<uint64_t> values) {
    for (const uint64_t value : values) offsets[first_word++] = value;
  };
  put(3, {283'376, 0, 632});                                 // runtime
  put(6, {216'816, 7280, 7264, 7344});                       // interpreter
  put(19, {336, 0, 8, 16, 72, 152});                         // thread
  put(28, {88, 8, 0, 56, 72, 70});                           // frame
  put(34, {208, 112, 120, 128, 136, 68, 52, 96, 104, 200});  // code
  put(64, {40, 16, 32});                                     // bytes
  put(67, {64, 32, 16, 40});                                 // string
  return offsets;
}

}  // namespace gpuperf
