#pragma once

// Captures as bytes: a gpuperf.v1.StoredCapture, in pieces, with a checksum behind them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/model/capture.h"
#include "daemon/model/capture_order.h"

namespace gpuperf {

// Bounds of a file: what a hostile one may make its reader allocate. A capture of a million pieces
// of work has some 30 MB.
inline constexpr size_t kMaxCaptureFileBytes = size_t{1} << 30;
inline constexpr size_t kMaxCaptureEvents = size_t{1} << 24;     // of each kind
inline constexpr size_t kMaxCaptureTableRows = size_t{1} << 22;  // of each table
inline constexpr size_t kMaxCaptureFrames = size_t{1} << 26;     // of all stacks together
inline constexpr size_t kMaxCaptureTextBytes = size_t{64}
                                               << 10;  // of one text; longer ones are cut
inline constexpr size_t kMaxCaptureTextsBytes = size_t{1} << 30;  // of all texts in memory

// What stands first in the file.
struct CaptureHead {
  CaptureRow row;  // stored_bytes is 0: a file does not know its size
  CaptureMatches matches;
};

// `row` gives what the capture itself does not know: its target, who asked, what was lost.
// ResourceExhausted: more than a file may hold. Internal: an index names nothing.
Result<std::string> encode_capture(const Capture& capture, const CaptureRow& row);

// Never crashes and allocates a bounded multiple of the bytes, whatever they are. Every index of
// the answer is one of its table, or kNoIndex where that may be. DataLoss says what is wrong.
Result<Capture> decode_capture(std::string_view bytes);

// Of the file's beginning: kCaptureHeadBytes of it are enough.
inline constexpr size_t kCaptureHeadBytes = size_t{16} << 10;
Result<CaptureHead> decode_capture_head(std::string_view beginning);

// OK where every index names something, or is kNoIndex where that may be, and times are below 2^62.
Status check_capture(const Capture& capture);

// The field that ends a file of these bytes.
inline constexpr size_t kCaptureTrailerBytes = 5;
std::string make_capture_trailer(std::string_view bytes);

}  // namespace gpuperf
