#pragma once

#include "daemon/base/result.h"
#include "daemon/model/capture.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Where the wall time of the processes that the request asks for went. NOT_FOUND: it asks for a
// step that the capture does not have as a whole.
Result<v1::ExplainCaptureResponse> explain_capture(const Capture& capture,
                                                   const v1::ExplainCaptureRequest& request);

}  // namespace gpuperf
