#pragma once

#include "daemon/model/capture.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf {

// Where the wall time of the processes that the request asks for went.
v1::ExplainCaptureResponse explain_capture(const Capture& capture,
                                           const v1::ExplainCaptureRequest& request);

}  // namespace gpuperf
