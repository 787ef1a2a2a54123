#pragma once

#include <string>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// What a picture of a capture says of itself.
struct ViewHeader {
  std::string title;               // "GPU time by host stack, trainer-1"
  std::vector<std::string> lines;  // what is shown, of when and where; what is missing
};

// `shown_ns`: the sum of what is shown.
ViewHeader make_view_header(const Capture& capture, const ViewOptions& options, uint64_t shown_ns);

// "2026-11-22 08:15:30 UTC, 10.000 s on trainer-1, capture 7 'name'".
std::string describe_window(const Capture& capture);
// How well work and launches found each other, and what the capture does not know.
std::string describe_matches(const Capture& capture);
// Stretches of which records are missing, by cause; empty = none.
std::string describe_gaps(const Capture& capture);

// "1.234 s", "12.345 ms", "12.345 µs".
std::string format_duration(uint64_t duration_ns);

}  // namespace gpuperf
