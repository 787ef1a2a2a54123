#pragma once

// Rows of captures as messages: for the API and for the head of a capture's file.

#include "daemon/base/result.h"
#include "daemon/model/capture.h"
#include "daemon/model/capture_order.h"
#include "gpuperf/v1/capture.pb.h"

namespace gpuperf {

// Texts of the outside become valid UTF-8.
v1::CaptureTarget to_proto(const CaptureTarget& target);
CaptureTarget from_proto(const v1::CaptureTarget& message);

v1::Capture to_proto(const CaptureRow& row);
CaptureRow from_proto(const v1::Capture& message);

v1::CaptureMatches to_proto(const CaptureMatches& matches);
CaptureMatches from_proto(const v1::CaptureMatches& message);

v1::Recorder to_proto(const RecorderRow& row);

}  // namespace gpuperf
