#include "daemon/session/session_messages.h"

#include <spdlog/fmt/fmt.h>

namespace gpuperf {
namespace {

// A person who looks at a session sees what is true now.
constexpr uint32_t kHeartbeatMs = 1'000;
// Longer than the daemon's own longest stalls, shorter than a process would fill its queue in vain.
constexpr uint32_t kAbandonMs = 10'000;

template <class Message>
gpuperf_message make_header(uint16_t kind, const SessionAnswer& answer) {
  return {.magic = GPUPERF_SESSION_MAGIC,
          .version = answer.version,
          .kind = kind,
          .length_bytes = sizeof(Message),
          .sequence = answer.sequence};
}

uint32_t get_mode(SessionOrder::Mode mode) {
  switch (mode) {
    case SessionOrder::Mode::kRun:
      return GPUPERF_SESSION_RUN;
    case SessionOrder::Mode::kPause:
      return GPUPERF_SESSION_PAUSE;
    case SessionOrder::Mode::kOff:
      return GPUPERF_SESSION_OFF;
  }
  return GPUPERF_SESSION_OFF;
}

// A newer daemon may be there by then, a place free, a look into /proc possible.
uint32_t get_retry_ms(gpuperf_session_refusal reason) {
  switch (reason) {
    case GPUPERF_SESSION_REFUSED_FULL:
      return 10'000;
    case GPUPERF_SESSION_REFUSED_VERSION:
    case GPUPERF_SESSION_REFUSED_IDENTITY:
    case GPUPERF_SESSION_REFUSED_CONFIG:
      return 60'000;
  }
  return 60'000;
}

}  // namespace

Status check_session_order(const SessionOrder& order) {
  if ((order.enabled_kinds & ~GPUPERF_SESSION_ALL_KINDS) != 0) {
    return absl::InvalidArgumentError("order: enabled_kinds has a kind that cannot be asked for");
  }
  if (order.sample_every == 0) {
    return absl::InvalidArgumentError("order: sample_every is 0; 1 keeps every launch");
  }
  if (order.burst_ms > GPUPERF_SESSION_BURST_MS_MAX) {
    return absl::InvalidArgumentError(fmt::format("order: a burst of {} ms; the longest is {}",
                                                  order.burst_ms, GPUPERF_SESSION_BURST_MS_MAX));
  }
  constexpr uint32_t kBursts =
      GPUPERF_SESSION_BURST_NODES | GPUPERF_SESSION_BURST_ALL_APIS | GPUPERF_SESSION_BURST_SAMPLES;
  if ((order.burst_flags & ~kBursts) != 0) {
    return absl::InvalidArgumentError("order: burst_flags has one that is not known");
  }
  return absl::OkStatus();
}

gpuperf_control make_session_control(uint16_t kind, const SessionAnswer& answer,
                                     uint64_t session_id, const SessionOrder& order,
                                     uint32_t flush_interval_ms) {
  const uint64_t kinds = order.enabled_kinds == 0 ? GPUPERF_SESSION_ALL_KINDS : order.enabled_kinds;
  return {.header = make_header<gpuperf_control>(kind, answer),
          .session_id = session_id,
          .enabled_kinds = order.is_later ? kinds | GPUPERF_SESSION_LATER : kinds,
          .mode = get_mode(order.mode),
          .sample_every = order.sample_every,
          .flush_interval_ms = flush_interval_ms,
          .batch_bytes_max = GPUPERF_MESSAGE_BYTES_MAX,
          .burst_flags = order.burst_flags,
          .burst_ms = order.burst_ms,
          .heartbeat_ms = kHeartbeatMs,
          .abandon_ms = kAbandonMs};
}

gpuperf_refuse make_session_refusal(const SessionAnswer& answer, gpuperf_session_refusal reason) {
  return {.header = make_header<gpuperf_refuse>(GPUPERF_MESSAGE_REFUSE, answer),
          .reason = reason,
          .retry_ms = get_retry_ms(reason)};
}

}  // namespace gpuperf
