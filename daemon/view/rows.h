#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// The row of an index of a capture; null where there is none. A view never reads past the end of a
// table, whatever the capture's indexes say.
template <typename Row>
const Row* find_row(const std::vector<Row>& rows, uint32_t index) {
  return index < rows.size() ? &rows[index] : nullptr;
}

// The device that a piece of work ran on; kNoIndex = not known.
inline uint32_t find_device(const Capture& capture, const CaptureWork& work) {
  const CaptureStream* stream = find_row(capture.streams, work.stream);
  return stream != nullptr && stream->device < capture.devices.size() ? stream->device : kNoIndex;
}

}  // namespace gpuperf
