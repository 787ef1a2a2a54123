#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// What GPU work is added up by.
enum class WorkGrouping {
  kKernel,    // the kernel, copy, set or graph
  kOperator,  // innermost probed call around the launch that is of no CUDA library; else the
              // innermost function of Python
  kStack,     // the whole path of the launch
  kLine,      // innermost line outside installed packages; else the innermost line there is
  kLibrary,   // outermost probed call of a CUDA library around the launch; else the launch call
};

struct WorkRow {
  std::string name;
  std::vector<std::string> path;  // by stack: outermost first
  uint64_t gpu_ns = 0;
  uint64_t work = 0;      // pieces of it
  uint64_t launches = 0;  // calls that launched them
  uint64_t min_ns = 0;
  uint64_t max_ns = 0;
  uint64_t bytes = 0;                    // of copies and sets
  std::vector<std::string> top_kernels;  // at most three, most time first; empty by kernel
  bool operator==(const WorkRow&) const = default;
};

// Most time first. `kernel`: only work of this name, short or full; `*` matches any run of
// characters; empty = all. A graph's record is left out where its nodes are known.
std::vector<WorkRow> list_work_rows(const Capture& capture, WorkGrouping by,
                                    std::string_view kernel);

}  // namespace gpuperf
