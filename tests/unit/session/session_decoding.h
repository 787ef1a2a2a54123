#pragma once

// Any bytes as messages of a session, and what must hold of whatever comes out.

#include <algorithm>
#include <functional>
#include <span>
#include <string>

#include "daemon/session/decode_session.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/session/session_packets.h"

namespace gpuperf {

struct SessionDecoding {
  bool is_accepted = false;
  std::string fault;  // a promise that was broken; empty = none
};

// Why the batch breaks a promise of daemon/model/session.h, or nothing.
inline std::string find_fault(const DecodedBatch& decoded, const SessionTables& tables,
                              size_t packet_bytes) {
  const SessionBatch& batch = decoded.batch;
  const auto is_place = [&](const auto& row) {
    return row.place_id != 0 && row.place_id <= tables.places;
  };
  const auto is_kernel = [&](const KernelRecord& row) {
    return is_place(row) && row.name_id != 0 && row.name_id <= tables.names && row.shape_id != 0 &&
           row.shape_id <= tables.shapes;
  };
  const auto is_text = [](const KernelName& row) {
    return row.text.size() <= GPUPERF_NAME_BYTES_MAX && row.text.find('\0') == row.text.npos;
  };
  const auto is_timed = [](const auto& row) {
    return row.start_mono_ns != 0 && row.start_mono_ns + row.duration_ns >= row.start_mono_ns &&
           row.start_mono_ns + row.duration_ns < (uint64_t{1} << 63);
  };
  const auto all_timed = [&](const auto& rows) { return std::ranges::all_of(rows, is_timed); };
  if (!std::ranges::all_of(batch.kernels, is_kernel)) return "a kernel with unknown ids";
  if (!std::ranges::all_of(batch.copies, is_place)) return "a copy with an unknown place";
  if (!std::ranges::all_of(batch.names, is_text)) return "a name that is no text";
  if (!all_timed(batch.kernels) || !all_timed(batch.copies) || !all_timed(batch.apis) ||
      !all_timed(batch.graphs) || !all_timed(batch.syncs) || !all_timed(batch.overheads) ||
      !all_timed(batch.gaps) || !all_timed(batch.samplings)) {
    return "a time that cannot be";
  }
  const auto is_stall = [&](const StallRecord& row) {
    return row.name_id != 0 && row.name_id <= tables.names &&
           std::ranges::all_of(row.counts, [](const StallRecord::Count& count) {
             return count.stall < GPUPERF_STALL_COUNT && count.idle_samples <= count.samples;
           });
  };
  if (!std::ranges::all_of(batch.stalls, is_stall)) return "samples that cannot be";
  const size_t rows = count_records(batch);
  const SessionRejects& rejects = decoded.rejects;
  if (rows + rejects.unknown_kind + rejects.unknown_id + rejects.bad_value + rejects.bad_time !=
      decoded.record_count) {
    return "records that were neither taken nor counted";
  }
  if (decoded.record_count > packet_bytes / 8) return "more records than bytes";
  return "";
}

inline SessionDecoding decode_any(const std::string& packet, const Clock& clock) {
  const auto bytes = session_packets::as_bytes(packet);
  const RealtimeOffset offset(clock);
  const std::function<uint32_t(uint32_t)> find_thread = [](uint32_t tid) { return tid; };
  SessionTables tables;
  const SessionContext context{.session_id = 1,
                               .now_unix_ns = clock.unix_ns(),
                               .name_bytes_max = 1'024,
                               .clock = offset,
                               .find_thread = find_thread};
  // As the source does, which asks for the kind first; but a wrong front hides nothing behind it.
  const auto message = decode_session_message(bytes);
  const auto batch = decode_session_batch(bytes, context, tables);
  const auto status = decode_session_status(bytes, 1);
  const auto hello = decode_session_hello(bytes);
  SessionDecoding decoding{.is_accepted = message.ok() && (batch.ok() || hello.ok())};
  if (batch.ok()) decoding.fault = find_fault(*batch, tables, packet.size());
  if (status.ok() && status->has_value() && (*status)->detail.size() > 96) {
    decoding.fault = "a detail beyond its field";
  }
  return decoding;
}

}  // namespace gpuperf
