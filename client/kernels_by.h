#pragma once

#include <cstdint>
#include <string>

#include "client/command.h"

namespace gpuperf::client {

// kernels --by: GPU work of a capture, by what launched it.
struct KernelsBy {
  std::string by;        // empty = kernels of the running statistics
  uint64_t capture = 0;  // 0 = the flight recorder, frozen now
  std::string last;
  bool keep = false;   // the frozen recorder, as a capture
  uint32_t depth = 0;  // by line; 0 = not asked
  std::string module;  // likewise
  bool interpreter_frames = false;
};

void add_kernels_by_flags(CLI::App& app, KernelsBy& asked);
Status run_kernels_by(Invocation& invocation, const KernelsBy& asked, bool full_names);

}  // namespace gpuperf::client
