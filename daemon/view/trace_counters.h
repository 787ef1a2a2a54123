#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/timeline.h"

namespace gpuperf {

// "stream 7, context 1, python (4711)".
std::string make_stream_name(const Capture& capture, uint32_t stream);

// Launches that wait on each stream, of each device whether it is busy, 0 or 100 percent, and the
// hardware counters of every GPU: whole percent, or MB/s; 0 where they could not be read.
//
// At most kMaxSteps each: where more changed, a queue shows the deepest it was in every of
// kBins equal parts of the window, and a device the share of the part it was busy.
std::vector<TraceCounter> make_counters(const Capture& capture, const Timeline& timeline);

inline constexpr size_t kMaxSteps = 10'000;
inline constexpr uint64_t kBins = 2'000;

}  // namespace gpuperf
