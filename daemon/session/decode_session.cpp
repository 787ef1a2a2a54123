#include "daemon/session/decode_session.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <tuple>

#include "daemon/session/session_bytes.h"
#include "injector/session_abi.h"

namespace gpuperf {
namespace {

static_assert(std::tuple_size_v<decltype(SessionStatus::losses)> == GPUPERF_SESSION_LOSS_COUNT);

constexpr uint32_t kKnownLevels = 2 * GPUPERF_SESSION_LEVEL_SAMPLES - 1;

Status check_length(std::span<const std::byte> packet, size_t needed, std::string_view what) {
  if (packet.size() >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} of {} bytes; it has at least {}", what, packet.size(), needed));
}

}  // namespace

Result<SessionMessage> decode_session_message(std::span<const std::byte> packet) {
  RETURN_IF_ERROR(check_length(packet, sizeof(gpuperf_message), "message"));
  const auto header = copy_as<gpuperf_message>(packet);
  if (header.magic != GPUPERF_SESSION_MAGIC) return absl::InvalidArgumentError("not a message");
  if (header.length_bytes != packet.size()) {
    return absl::InvalidArgumentError(
        fmt::format("message of {} bytes says it has {}", packet.size(), header.length_bytes));
  }
  if (header.version == 0) return absl::InvalidArgumentError("message of version 0");
  return SessionMessage{.version = header.version, .kind = header.kind};
}

Result<SessionHello> decode_session_hello(std::span<const std::byte> packet) {
  RETURN_IF_ERROR(check_length(packet, sizeof(gpuperf_hello), "HELLO"));
  const auto hello = copy_as<gpuperf_hello>(packet);
  if (hello.oldest_version == 0 || hello.oldest_version > hello.header.version) {
    return absl::InvalidArgumentError(
        fmt::format("HELLO speaks versions {} to {}", hello.oldest_version, hello.header.version));
  }
  if (hello.pad != 0) return absl::InvalidArgumentError("HELLO with padding that is not zero");
  return SessionHello{.version = hello.header.version,
                      .oldest_version = hello.oldest_version,
                      .capabilities = hello.capabilities,
                      .process_start_ticks = hello.process_start_ticks,
                      .mono_ns = static_cast<int64_t>(hello.mono_ns),
                      .unix_ns = static_cast<int64_t>(hello.unix_ns),
                      .pid = hello.pid,
                      .connection = hello.connection,
                      .injector_version = copy_text(hello.injector_version),
                      .comm = copy_text(hello.comm)};
}

Result<std::optional<SessionStatus>> decode_session_status(std::span<const std::byte> packet,
                                                           uint64_t session_id) {
  constexpr size_t kFirstBytes = offsetof(gpuperf_status, hooked_calls);  // up to 0.9
  RETURN_IF_ERROR(check_length(packet, kFirstBytes, "STATUS"));
  gpuperf_status said = {};
  std::memcpy(&said, packet.data(), std::min(packet.size(), sizeof said));
  if (said.state < GPUPERF_SESSION_STATE_WAITING || said.state > GPUPERF_SESSION_STATE_FAILED ||
      said.cause >= GPUPERF_SESSION_CAUSE_COUNT || said.clock_foreign > 1) {
    return std::nullopt;
  }
  SessionStatus status{.session_id = session_id,
                       .enabled_kinds = said.enabled_kinds,
                       .records_sent = said.records_sent,
                       .cupti_overhead_ns = said.cupti_overhead_ns,
                       .injector_cpu_ns = said.injector_cpu_ns,
                       .clock_error_ns = said.clock_error_ns,
                       .yields = said.yields,
                       .state = said.state,
                       .cause = said.cause,
                       .level = said.level & kKnownLevels,
                       .sample_every = std::max(said.sample_every, 1u),
                       .cupti_version = said.cupti_version,
                       .driver_version = said.driver_version,
                       .is_clock_foreign = said.clock_foreign == 1,
                       .buffer_mib = said.buffer_mib,
                       .detail = copy_text(said.detail),
                       .mono_ns = said.mono_ns,
                       .hooked_calls = said.hooked_calls,
                       .timed_hooks = said.timed_hooks,
                       .timed_hooks_ns = said.timed_hooks_ns};
  for (size_t i = 0; i < status.losses.size(); ++i) status.losses[i] = said.losses[i];
  return status;
}

}  // namespace gpuperf
