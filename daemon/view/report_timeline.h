#pragma once

#include <cstdint>
#include <string>

#include "daemon/model/capture.h"

namespace gpuperf {

// Pieces that a timeline holds. Beyond, neighbours are merged: 8.5 MB of a page are enough.
inline constexpr size_t kMostTimelineItems = 400'000;
// Rows of streams, and of threads. The busiest are kept.
inline constexpr size_t kMostTimelineRows = 64;

// What drawTimeline() of assets/report.js takes: JSON that may stand in any script.
//
// {span_ns, tick_ns, begin_ns: of the window, from the timeline's begin on; merge_ns: neighbours
//  within so much time may be one piece, 0 = none are; left_out: rows; names, kinds: by name;
//  rows: [{label, is_host, lanes, count, items}]}
// `items` is base64 of arrays one behind the other, little-endian, `count` values each: u32 start,
// u32 duration (in ticks), u32 name, u32 tick of the launch call (2^32-1: not known; 0 of host
// rows), u16 row of the launching thread (65535: none), of host rows the lane; u16 pieces in it.
std::string make_timeline_json(const Capture& capture, size_t most_items = kMostTimelineItems);

}  // namespace gpuperf
