#include "daemon/model/capture_order.h"

namespace gpuperf {

std::string_view get_capture_state_name(CaptureState state) {
  switch (state) {
    case CaptureState::kScheduled:
      return "scheduled";
    case CaptureState::kRunning:
      return "running";
    case CaptureState::kSettling:
      return "settling";
    case CaptureState::kBuilding:
      return "building";
    case CaptureState::kStored:
      return "stored";
    case CaptureState::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace gpuperf
