#pragma once

// What the writer and the reader of a capture's file agree on, beside stored_capture.proto.

#include <cstddef>
#include <cstdint>

namespace gpuperf {

inline constexpr uint32_t kStoredFormat = 1;
// A piece parsed takes up to eight times its bytes; these keep that below 32 MiB.
inline constexpr size_t kStoredPieceBytes = size_t{4} << 20;   // at most
inline constexpr size_t kStoredBlockRows = 16'384;             // at most
inline constexpr size_t kStoredStackFrames = size_t{1} << 16;  // of a stack; a piece ends beyond it
inline constexpr size_t kStoredTextsBytes = size_t{1} << 20;   // a piece of texts ends beyond it
// Field 15, four bytes (StoredCapture.crc32).
inline constexpr char kStoredTrailerTag = 15 << 3 | 5;

// The values of the row before, from which differences are taken.
struct Differences {
  uint64_t start_ns = 0;
  uint64_t index = 0;
};

}  // namespace gpuperf
