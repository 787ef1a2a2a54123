#pragma once

// Values of session records as text, the same in every export. Values outside their enum are
// "unknown".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/session.h"

namespace gpuperf {

// "waiting", "collecting", "paused", "yielded", "off", "failed"; "starting" before any status.
std::string_view get_session_state_name(uint32_t state);
// "none", "control", "other_client", "nsight", "no_cupti", "cupti_version", "cupti_error",
// "daemon_gone", "device_buffers", "burst", "graphs_unseen".
std::string_view get_session_cause_name(uint32_t cause);
// "cupti_buffer", "device_buffer", "reversed", "queue_full", "no_daemon", "table_full", "sampled",
// "unknown_record", "pool_empty".
std::string_view get_session_loss_name(size_t loss);
// "kernels", "graphs", "nodes", "apis", "all_apis", "copies", "syncs", "memory".
std::vector<std::string_view> list_session_levels(uint32_t level);
// "host_to_device", "device_to_host", "host_to_array", …, "peer_to_peer"; "set" of a set.
std::string_view get_copy_direction_name(bool is_set, uint8_t direction);
// "pageable", "pinned", "device", "array", "managed", "device_static", "managed_static".
std::string_view get_memory_kind_name(uint8_t memory);
// "event", "stream_event", "stream", "context".
std::string_view get_sync_type_name(uint32_t type);
// "driver_compiler", "buffer_flush", "instrumentation", "resource", "module_loading",
// "function_loading", "command_buffer_full", "activity_buffer", "window".
std::string_view get_overhead_type_name(uint32_t type);
// "GPU-8f1ab2c3-…" as NVIDIA's tools write it; empty where it is not known.
std::string format_gpu_uuid(const GpuUuid& uuid);

}  // namespace gpuperf
