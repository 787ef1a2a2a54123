#pragma once

// Messages of injected processes as bytes, by the contract.

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "injector/session_abi.h"

namespace gpuperf::session_packets {

using Packet = std::string;

inline std::span<const std::byte> as_bytes(const Packet& packet) {
  return std::as_bytes(std::span(packet));
}

template <class Struct>
Packet make_bytes(const Struct& value) {
  return Packet(reinterpret_cast<const char*>(&value), sizeof value);
}

// Fills in the header. `body` stands behind the struct.
template <class Message>
Packet make_message(uint16_t kind, Message message, std::string_view body = {}) {
  message.header = {.magic = GPUPERF_SESSION_MAGIC,
                    .version = GPUPERF_SESSION_VERSION,
                    .kind = kind,
                    .length_bytes = static_cast<uint32_t>(sizeof message + body.size())};
  return make_bytes(message) + Packet(body);
}

// Fills in kind and length. `more` stands behind the struct: what a later version adds.
template <class Record>
Packet make_record(uint16_t kind, uint32_t id, Record record, std::string_view more = {}) {
  record.record = {
      .kind = kind, .length_bytes = static_cast<uint16_t>(sizeof record + more.size()), .id = id};
  return make_bytes(record) + Packet(more);
}

inline Packet make_name(uint32_t id, std::string_view text, uint16_t cut = 0) {
  Packet padded(text);
  padded.resize((padded.size() + 7) & ~size_t{7});
  return make_record(
      GPUPERF_SESSION_NAME, id,
      gpuperf_session_name{.text_bytes = static_cast<__u16>(text.size()), .cut = cut}, padded);
}

inline Packet make_shape(uint32_t id) {
  return make_record(GPUPERF_SESSION_SHAPE, id,
                     gpuperf_session_shape{.grid = {4, 2, 1},
                                           .block = {256, 1, 1},
                                           .shared_memory_bytes = 1024,
                                           .registers_per_thread = 32});
}

inline Packet make_place(uint32_t id) {
  return make_record(GPUPERF_SESSION_PLACE, id,
                     gpuperf_session_place{.device = 3,
                                           .context = 1,
                                           .stream = 7,
                                           .sm_count = 132,
                                           .threads_per_sm = 2048,
                                           .blocks_per_sm = 32,
                                           .registers_per_sm = 65536,
                                           .shared_memory_per_sm_bytes = 233472,
                                           .shared_memory_reserved_bytes = 1024});
}

inline Packet make_dictionary() {
  return make_name(1, "_Z6kernelv") + make_shape(1) + make_place(1);
}

inline gpuperf_session_kernel make_kernel(uint64_t start_unix_ns) {
  return {.start_unix_ns = start_unix_ns,
          .duration_ns = 1'000,
          .name_id = 1,
          .shape_id = 1,
          .place_id = 1,
          .graph_id = 5,
          .node_id = 6,
          .flags = GPUPERF_KERNEL_FROM_GRAPH};
}

// Of one instruction: in two states.
inline Packet make_stalls(uint32_t name_id, uint32_t stall = GPUPERF_STALL_barrier,
                          uint32_t idle_samples = 3, uint32_t count = 2) {
  const Packet counts =
      make_bytes(
          gpuperf_session_stall{.stall = stall, .samples = 10, .idle_samples = idle_samples}) +
      make_bytes(gpuperf_session_stall{.stall = GPUPERF_STALL_selected, .samples = 20});
  return make_record(
      GPUPERF_SESSION_STALLS, name_id,
      gpuperf_session_stalls{.cubin_crc = 0xdf940d43, .pc_offset_bytes = 0x120, .count = count},
      counts);
}

// A piece of a module's image.
inline Packet make_cubin(uint32_t size_bytes, uint32_t offset_bytes, std::string_view piece,
                         uint64_t crc = 0xdf940d43, uint32_t state = GPUPERF_CUBIN_FOUND) {
  Packet padded(piece);
  padded.resize((padded.size() + 7) & ~size_t{7});
  return make_record(GPUPERF_SESSION_CUBIN, state,
                     gpuperf_session_cubin{.cubin_crc = crc,
                                           .size_bytes = size_bytes,
                                           .offset_bytes = offset_bytes,
                                           .piece_bytes = static_cast<__u32>(piece.size())},
                     padded);
}

inline Packet make_batch(const std::vector<Packet>& records) {
  Packet body;
  for (const Packet& record : records) body += record;
  return make_message(GPUPERF_MESSAGE_BATCH,
                      gpuperf_batch{.record_count = static_cast<uint32_t>(records.size()),
                                    .records_bytes = static_cast<uint32_t>(body.size()),
                                    .sent_unix_ns = 1},
                      body);
}

// One of each kind, in the order of their kinds; all start at `start_unix_ns`.
inline std::vector<Packet> make_all_records(uint64_t start_unix_ns) {
  return {
      make_name(1, "_Z6kernelv"),
      make_shape(1),
      make_place(1),
      make_record(GPUPERF_SESSION_GAP, GPUPERF_SESSION_CAUSE_BURST,
                  gpuperf_session_gap{.start_unix_ns = start_unix_ns, .duration_ns = 9}),
      make_record(GPUPERF_SESSION_KERNEL, 42, make_kernel(start_unix_ns)),
      make_record(GPUPERF_SESSION_MEMCPY, 43,
                  gpuperf_session_memcpy{.start_unix_ns = start_unix_ns,
                                         .duration_ns = 2,
                                         .copied_bytes = 4096,
                                         .place_id = 1,
                                         .direction = GPUPERF_MEMCPY_HOST_TO_DEVICE,
                                         .source_memory = GPUPERF_MEMORY_PINNED,
                                         .target_memory = GPUPERF_MEMORY_DEVICE,
                                         .flags = GPUPERF_MEMCPY_ASYNC}),
      make_record(GPUPERF_SESSION_MEMSET, 44,
                  gpuperf_session_memset{.start_unix_ns = start_unix_ns,
                                         .duration_ns = 3,
                                         .set_bytes = 512,
                                         .place_id = 1,
                                         .memory = GPUPERF_MEMORY_DEVICE}),
      make_record(GPUPERF_SESSION_API, 42,
                  gpuperf_session_api{.start_unix_ns = start_unix_ns,
                                      .duration_ns = 4,
                                      .tid = 77,
                                      .callback_id = 211,
                                      .return_value = 2,
                                      .domain = GPUPERF_API_DRIVER}),
      make_record(
          GPUPERF_SESSION_GRAPH, 45,
          gpuperf_session_graph{
              .start_unix_ns = start_unix_ns, .duration_ns = 5, .graph_id = 8, .place_id = 1}),
      make_record(GPUPERF_SESSION_SYNC, 46,
                  gpuperf_session_sync{.start_unix_ns = start_unix_ns,
                                       .duration_ns = 6,
                                       .type = GPUPERF_SYNC_STREAM,
                                       .place_id = 1}),
      make_record(GPUPERF_SESSION_MEMORY, 47,
                  gpuperf_session_memory{.unix_ns = start_unix_ns,
                                         .address = 0x7f00,
                                         .size_bytes = 1 << 20,
                                         .place_id = 1,
                                         .operation = GPUPERF_MEMORY_RELEASE,
                                         .memory = GPUPERF_MEMORY_DEVICE,
                                         .from_pool = 1}),
      make_record(GPUPERF_SESSION_OVERHEAD, 77,
                  gpuperf_session_overhead{.start_unix_ns = start_unix_ns,
                                           .duration_ns = 7,
                                           .type = GPUPERF_OVERHEAD_MODULE_LOADING}),
      make_stalls(1),
      make_record(GPUPERF_SESSION_SAMPLING, 1,
                  gpuperf_session_sampling{.start_unix_ns = start_unix_ns,
                                           .duration_ns = 8,
                                           .samples = 90,
                                           .dropped_samples = 2,
                                           .other_samples = 5,
                                           .period = 16,
                                           .flags = GPUPERF_SAMPLING_BUFFER_FULL}),
      make_cubin(11, 0, "not a cubin"),
  };
}

inline gpuperf_hello make_hello() {
  return {.capabilities = GPUPERF_SESSION_ALL_KINDS,
          .process_start_ticks = 123,
          .mono_ns = 5,
          .unix_ns = 6,
          .pid = 71,
          .oldest_version = 1,
          .connection = 2,
          .injector_version = "0.1.0",
          .comm = "python3"};
}

inline gpuperf_status make_status() {
  return {.enabled_kinds = GPUPERF_SESSION_ALL_KINDS,
          .mono_ns = 5,
          .unix_ns = 6,
          .records_sent = 7,
          .losses = {1, 2, 3, 4, 5, 6, 7, 8, 9},
          .cupti_overhead_ns = 10,
          .injector_cpu_ns = 11,
          .clock_error_ns = 12,
          .yields = 13,
          .state = GPUPERF_SESSION_STATE_YIELDED,
          .cause = GPUPERF_SESSION_CAUSE_OTHER_CLIENT,
          .level = GPUPERF_SESSION_LEVEL_KERNELS,
          .sample_every = 10,
          .cupti_version = 130001,
          .driver_version = 13000,
          .clock_foreign = 1,
          .buffer_mib = 32,
          .detail = "libkineto",
          .hooked_calls = 14,
          .timed_hooks = 15,
          .timed_hooks_ns = 16};
}

}  // namespace gpuperf::session_packets
