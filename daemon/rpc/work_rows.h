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
  kLine,      // see WorkRowOptions
  kLibrary,   // outermost probed call of a CUDA library around the launch; else the launch call
};

struct WorkRowOptions {
  WorkGrouping by = WorkGrouping::kKernel;
  // Only work of this name, short or full; `*` matches any run of characters; empty = all.
  std::string_view kernel;
  bool short_names = false;  // of kernels
  // By line: lines of this package, module or file qualify; empty = those that are not in PyTorch
  // or the interpreter. Where none does: without `module` the innermost line there is.
  std::string_view module;
  // By line: which of those that qualify, from the innermost; past the last it is the outermost.
  uint32_t depth = 1;
  bool interpreter_frames = false;  // by stack
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

struct WorkRows {
  std::vector<WorkRow> rows;  // most time first
  // Pieces of work whose row is an estimate: their launches carry no stack, so they are shared out
  // as those of the same kernel that do. A kernel that never does has the row "[stack not
  // sampled]".
  uint64_t estimated_work = 0;
};
// A graph's record is left out where its nodes are known.
WorkRows list_work_rows(const Capture& capture, const WorkRowOptions& options);

}  // namespace gpuperf
