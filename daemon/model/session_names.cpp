#include "daemon/model/session_names.h"

#include <spdlog/fmt/fmt.h>

#include <span>

#include "injector/session_abi.h"

namespace gpuperf {
namespace {

constexpr std::string_view kUnknown = "unknown";

constexpr std::string_view kStates[] = {"starting", "waiting", "collecting", "paused",
                                        "yielded",  "off",     "failed"};
constexpr std::string_view kCauses[] = {
    "none",        "control",     "other_client",   "nsight", "no_cupti",     "cupti_version",
    "cupti_error", "daemon_gone", "device_buffers", "burst",  "graphs_unseen"};
constexpr std::string_view kLosses[] = {
    "cupti_buffer", "device_buffer", "reversed",       "queue_full", "no_daemon",
    "table_full",   "sampled",       "unknown_record", "pool_empty", "incomplete"};
// By bit; empty = not among what is collected.
constexpr std::string_view kLevels[] = {"kernels",      "graphs", "nodes",  "apis",
                                        "all_apis",     "copies", "syncs",  "memory",
                                        "hooked_calls", "",       "samples"};
constexpr std::string_view kDirections[] = {
    kUnknown,           "host_to_device", "device_to_host",  "host_to_array",
    "array_to_host",    "array_to_array", "array_to_device", "device_to_array",
    "device_to_device", "host_to_host",   "peer_to_peer"};
constexpr std::string_view kMemoryKinds[] = {kUnknown,        "pageable",      "pinned",
                                             "device",        "array",         "managed",
                                             "device_static", "managed_static"};
constexpr std::string_view kSyncTypes[] = {kUnknown, "event", "stream_event", "stream", "context"};
constexpr std::string_view kOverheadTypes[] = {
    kUnknown,         "driver_compiler",  "buffer_flush",        "instrumentation", "resource",
    "module_loading", "function_loading", "command_buffer_full", "activity_buffer", "window"};
static_assert(std::size(kStates) == GPUPERF_SESSION_STATE_FAILED + 1);
static_assert(std::size(kCauses) == GPUPERF_SESSION_CAUSE_COUNT);
static_assert(std::size(kLosses) == GPUPERF_SESSION_LOSS_COUNT);
static_assert(std::size(kDirections) == GPUPERF_MEMCPY_COUNT);
static_assert(std::size(kMemoryKinds) == GPUPERF_MEMORY_COUNT);
static_assert(std::size(kSyncTypes) == GPUPERF_SYNC_COUNT);
static_assert(std::size(kOverheadTypes) == GPUPERF_OVERHEAD_COUNT);

std::string_view get_name(std::span<const std::string_view> names, size_t value) {
  return value < names.size() ? names[value] : kUnknown;
}

}  // namespace

std::string_view get_session_state_name(uint32_t state) { return get_name(kStates, state); }
std::string_view get_session_cause_name(uint32_t cause) { return get_name(kCauses, cause); }
std::string_view get_session_loss_name(size_t loss) { return get_name(kLosses, loss); }

std::vector<std::string_view> list_session_levels(uint32_t level) {
  std::vector<std::string_view> names;
  for (size_t bit = 0; bit < std::size(kLevels); ++bit) {
    if ((level >> bit & 1) != 0 && !kLevels[bit].empty()) names.push_back(kLevels[bit]);
  }
  return names;
}

std::string_view get_copy_direction_name(bool is_set, uint8_t direction) {
  return is_set ? "set" : get_name(kDirections, direction);
}
std::string_view get_memory_kind_name(uint8_t memory) { return get_name(kMemoryKinds, memory); }
std::string_view get_sync_type_name(uint32_t type) { return get_name(kSyncTypes, type); }
std::string_view get_overhead_type_name(uint32_t type) { return get_name(kOverheadTypes, type); }

std::string format_gpu_uuid(const GpuUuid& uuid) {
  if (uuid == GpuUuid{}) return "";
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

}  // namespace gpuperf
