#pragma once

// Captures in words and tables.

#include <string>
#include <vector>

#include "client/render.h"
#include "client/table.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

std::string render_captures(const std::vector<v1::Capture>& captures, const TextStyle& style);
// One capture, line by line; `matches` may be null.
std::string describe_capture(const v1::Capture& capture, const v1::CaptureMatches* matches,
                             const TextStyle& style);
// "running, 1,234 events, 7 s left".
std::string describe_progress(const v1::Capture& capture, uint64_t now_unix_ns);
// "The flight recorder holds the last 29.8 s: 12,345 events, 3.2 MiB of 64 MiB".
std::string describe_recorder(const v1::Recorder& recorder);
// The same of one that is on, without its subject.
std::string describe_recorder_content(const v1::Recorder& recorder);

// The capture a command ends with, in the form asked for.
std::string render_capture(const v1::GetCaptureResponse& response, Format format,
                           const TextStyle& style);

}  // namespace gpuperf::client
