#include "daemon/otlp/retry.h"

#include <algorithm>

#include "google/rpc/retry_info.pb.h"

namespace gpuperf::otlp {
namespace {

using std::chrono::milliseconds;

// A server that asks for more has made a mistake, or wants to be left alone: it is asked again now
// and then all the same.
constexpr milliseconds kLongestPause{600'000};

bool is_transient(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

// Empty = the server says nothing of it.
std::optional<milliseconds> find_pause(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& detail : details.details()) {
    google::rpc::RetryInfo info;
    if (!detail.Is<google::rpc::RetryInfo>() || !detail.UnpackTo(&info)) continue;
    const auto& delay = info.retry_delay();
    const int64_t seconds = std::clamp<int64_t>(delay.seconds(), 0, kLongestPause.count() / 1'000);
    return std::min(milliseconds(seconds * 1'000 + std::max(delay.nanos(), 0) / 1'000'000),
                    kLongestPause);
  }
  return std::nullopt;
}

}  // namespace

std::optional<milliseconds> find_retry_delay(const grpc::Status& status, uint32_t failures,
                                             double spread, const RetryTimes& times) {
  const std::optional<milliseconds> pause = find_pause(status);
  const bool is_throttled =
      status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && pause.has_value();
  if (!is_throttled && !is_transient(status.error_code())) return std::nullopt;
  if (pause && pause->count() > 0) return pause;  // a pause of nothing leaves it to us
  milliseconds delay = times.first;
  for (uint32_t i = 1; i < failures && delay < times.longest; ++i) delay *= 2;
  delay = std::min(delay, times.longest);
  const auto half_ms = static_cast<double>(delay.count()) / 2;
  return milliseconds(static_cast<int64_t>(half_ms + half_ms * spread));
}

}  // namespace gpuperf::otlp
