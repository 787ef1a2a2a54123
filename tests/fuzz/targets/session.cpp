// Any bytes as what an injected process sends (daemon/session), and the promises of
// daemon/model/session.h.

#include <algorithm>
#include <functional>

#include "daemon/session/decode_session.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/session/session_packets.h"

namespace gpuperf::fuzz {
namespace {

constexpr int64_t kNowUnixNs = 1'700'000'000'000'000'000;
constexpr size_t kDetailBytes = 96;

// Why the batch breaks a promise of daemon/model/session.h, or nothing.
std::string check(const DecodedBatch& decoded, const SessionTables& tables, size_t packet_bytes) {
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

}  // namespace

std::string find_fault(std::string_view packet) {
  const auto bytes = std::as_bytes(std::span(packet));
  const FakeClock clock{400'000'000'000'000, kNowUnixNs};
  const RealtimeOffset offset(clock);
  const std::function<uint32_t(uint32_t)> find_thread = [](uint32_t tid) { return tid; };
  SessionTables tables;
  Shares cubin_room({.total = uint64_t{1} << 20});
  const SessionContext context{.session_id = 1,
                               .now_unix_ns = clock.unix_ns(),
                               .name_bytes_max = 1'024,
                               .clock = offset,
                               .find_thread = find_thread,
                               .cubin_room = cubin_room,
                               .holder = {.uid = 1, .pid = 1}};
  // The source asks for the kind first; but a wrong front hides nothing behind it.
  (void)decode_session_message(bytes);
  (void)decode_session_hello(bytes);
  const auto status = decode_session_status(bytes, 1);
  if (status.ok() && status->has_value() && (*status)->detail.size() > kDetailBytes) {
    return "a detail beyond its field";
  }
  const auto batch = decode_session_batch(bytes, context, tables);
  return batch.ok() ? check(*batch, tables, packet.size()) : "";
}

std::vector<std::string> make_seeds() {
  using namespace session_packets;
  const auto records = make_all_records(kNowUnixNs - 1'000'000);
  const Packet status = make_message(GPUPERF_MESSAGE_STATUS, make_status());
  std::vector<std::string> seeds{make_batch(records), status,
                                 // Of the first releases, which lack the last field.
                                 status.substr(0, offsetof(gpuperf_status, hooked_calls)),
                                 make_message(GPUPERF_MESSAGE_HELLO, make_hello())};
  for (const Packet& record : records) {
    seeds.push_back(make_batch({make_name(1, "k"), make_shape(1), make_place(1), record}));
  }
  return seeds;
}

}  // namespace gpuperf::fuzz
