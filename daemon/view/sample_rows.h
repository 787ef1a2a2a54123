#pragma once

// What profiles are made of, whatever their form.

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/call_path.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// What is added up in one sample.
struct SampleRow {
  uint32_t path = kNoIndex;       // of the table
  uint32_t gpu_frame = kNoIndex;  // a frame of the table behind it; kNoIndex = none
  uint32_t process = kNoIndex;
  uint32_t work = kNoIndex;  // the first of the pieces of work; kNoIndex = host time
  uint64_t time_ns = 0;
  uint64_t calls = 0;   // launches, or calls
  uint64_t pieces = 0;  // of GPU work
};

// By ViewWeight: GPU time by path, GPU frame and stream, host time by path and process; in order of
// first use. The times add up to the records: a graph's record whose nodes are known counts with
// them.
std::vector<SampleRow> list_samples(const Capture& capture, const ViewOptions& options,
                                    PathTable& table);
// "gpu_time", "cpu_time", "off_cpu_time".
std::string_view get_time_name(ViewWeight weight);

// Where the frames of a path table with lines come from in the source. Borrows the capture.
class SourceFrames {
 public:
  explicit SourceFrames(const Capture& capture);
  // By a frame's text; null = it is no frame of a stack.
  const StackFrame* find(const std::string& text) const;

 private:
  absl::flat_hash_map<std::string, const StackFrame*> frames_;
};

// Its symbol; what stands for it where there is none.
std::string get_function_name(const StackFrame& frame);

}  // namespace gpuperf
