#pragma once

// Requests for captures, checked, as the daemon wants them.

#include "daemon/base/result.h"
#include "daemon/model/capture_order.h"
#include "gpuperf/v1/control.pb.h"

namespace gpuperf {

// INVALID_ARGUMENT names the field. `uid`: whose processes may be captured; 0 = everybody's.
Result<CaptureOrder> make_capture_order(const v1::StartCaptureRequest& request, uint32_t uid);
Result<FreezeOrder> make_freeze_order(const v1::FreezeRecorderRequest& request, uint32_t uid);

}  // namespace gpuperf
