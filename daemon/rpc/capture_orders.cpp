#include "daemon/rpc/capture_orders.h"

#include <spdlog/fmt/fmt.h>

#include <string>

#include "daemon/store/capture_proto.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxNameBytes = 128;  // as the proto says
constexpr size_t kMaxTargetBytes = 256;
constexpr uint64_t kDayMs = uint64_t{24} * 3600 * 1000;

Status check_text(const char* field, const std::string& text, size_t most) {
  if (text.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: {} bytes; at most {}", field, text.size(), most));
}

Status check_target(const v1::CaptureTarget& target) {
  RETURN_IF_ERROR(check_text("target.container", target.container(), kMaxTargetBytes));
  RETURN_IF_ERROR(check_text("target.pod", target.pod(), kMaxTargetBytes));
  if (target.with_children() && target.pid() == 0) {
    return absl::InvalidArgumentError("target.with_children: of which process? target.pid is 0");
  }
  return absl::OkStatus();
}

Status check_time(const char* field, uint64_t ms) {
  if (ms <= kDayMs) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: {}; at most a day, {}", field, ms, kDayMs));
}

}  // namespace

Result<CaptureOrder> make_capture_order(const v1::StartCaptureRequest& request, uint32_t uid) {
  RETURN_IF_ERROR(check_text("name", request.name(), kMaxNameBytes));
  RETURN_IF_ERROR(check_target(request.target()));
  RETURN_IF_ERROR(check_time("duration_ms", request.duration_ms()));
  RETURN_IF_ERROR(check_time("align_ms", request.align_ms()));
  if (!v1::CaptureParts_IsValid(request.parts())) {
    return absl::InvalidArgumentError(
        fmt::format("parts: {} is no CaptureParts", int{request.parts()}));
  }
  if (request.nodes() && request.parts() == v1::CAPTURE_PARTS_CPU) {
    return absl::InvalidArgumentError("nodes: are GPU work, which CAPTURE_PARTS_CPU leaves out");
  }
  if (request.samples() && request.parts() == v1::CAPTURE_PARTS_CPU) {
    return absl::InvalidArgumentError(
        "samples: are of the GPU, which CAPTURE_PARTS_CPU leaves out");
  }
  return CaptureOrder{.name = request.name(),
                      .target = from_proto(request.target()),
                      .duration_ms = request.duration_ms(),
                      .align_ms = request.align_ms(),
                      .cpu = request.parts() != v1::CAPTURE_PARTS_GPU,
                      .gpu = request.parts() != v1::CAPTURE_PARTS_CPU,
                      .nodes = request.nodes(),
                      .samples = request.samples(),
                      .requester_uid = uid};
}

Result<FreezeOrder> make_freeze_order(const v1::FreezeRecorderRequest& request, uint32_t uid) {
  RETURN_IF_ERROR(check_text("name", request.name(), kMaxNameBytes));
  RETURN_IF_ERROR(check_target(request.target()));
  RETURN_IF_ERROR(check_time("last_ms", request.last_ms()));
  return FreezeOrder{.name = request.name(),
                     .target = from_proto(request.target()),
                     .last_ms = request.last_ms(),
                     .requester_uid = uid};
}

}  // namespace gpuperf
