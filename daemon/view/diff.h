#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/formats.h"

namespace gpuperf {

enum class DiffBy {
  kPath,    // whole paths, the GPU's work at their end
  kFrame,   // functions, with everything that they called
  kKernel,  // what the GPU did, whoever launched it
  kStall    // what warps waited for; where there are no samples, what the GPU did
};

// What makes two windows comparable.
enum class DiffScale {
  kPerSecond,  // time per second of window
  kAbsolute,   // time
  kShare       // parts of 1,000,000,000 of all time
};

struct DiffOptions {
  ViewOptions view;
  DiffBy by = DiffBy::kPath;
  DiffScale scale = DiffScale::kPerSecond;
  size_t limit = 0;  // rows; 0 = all
};

struct DiffRow {
  std::string name;           // the path, its frames joined by ';'; the frame; the GPU's work
  std::string path;           // of frames and kernels: that through it which changed most
  uint64_t before_ns = 0;     // by the scale; of frames with what they called, counted once where
  uint64_t after_ns = 0;      // they call themselves
  int64_t delta_ns = 0;       // after - before
  int64_t explained_ns = 0;   // part of the change that no row above explains
  uint64_t before_count = 0;  // pieces of work, or calls; not scaled
  uint64_t after_count = 0;
  bool operator==(const DiffRow&) const = default;
};

// What changed, the best explanation first.
//
// Paths, kernels and stalls: by the size of their change. The counts of a stall are of the pieces
// of work of those kernels of which it is the first.
//
// Frames: a change shows in every frame from main() down to the kernel. The one to look at is where
// it is concentrated: the smallest function that holds it. Rank = |change not yet explained| x
// |change not yet explained| / max(before, after); of frames with nearly equal rank the innermost;
// a Python function before machine code inside it that ranks at most twice as high. What a row
// holds counts as explained, and the rest is ranked anew: main() comes last, unless it is the cause
// itself. Rows are functions of the host, Python's and native ones; frames of CUDA libraries and
// GPU work are rows only of paths that have none of those.
std::vector<DiffRow> diff_captures(const Capture& before, const Capture& after,
                                   const DiffOptions& options);

// A flame graph of `after`, coloured by change against `before`: red grown, blue shrunk; a button
// shows it with the widths of `before`, where what is gone is seen. Times are per second of window.
std::string render_diff_flamegraph(const Capture& before, const Capture& after,
                                   const ViewOptions& options);

}  // namespace gpuperf
