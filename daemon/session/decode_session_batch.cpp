#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "daemon/session/cubin_image.h"
#include "daemon/session/decode_session.h"
#include "daemon/session/session_bytes.h"
#include "injector/session_abi.h"

namespace gpuperf {
namespace {

using Bytes = std::span<const std::byte>;

// What is wrong with a record.
enum class Fault {
  kNone,
  kUnknownId,
  kBadValue,
  kBadTime,
  kMalformed,  // of a dictionary: what comes after could mean something else
};

struct MonoSpan {
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
};

constexpr size_t kPlaceBytesMin = offsetof(gpuperf_session_place, sm_count);  // up to 0.9

constexpr size_t round_up_to_8(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

bool is_zero(Bytes bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// Fills one batch, record by record.
class BatchReader {
 public:
  BatchReader(const SessionContext& context, SessionTables& tables, DecodedBatch& out)
      : context_(context), tables_(tables), out_(out), batch_(out.batch) {}

  // `record` is as long as it says. The text of an error is for the log.
  Status take(Bytes record, uint16_t kind);

 private:
  struct Row {
    size_t bytes;
    Fault (BatchReader::*take)(Bytes);
  };
  static const Row kRows[GPUPERF_SESSION_KIND_COUNT];

  Fault take_name(Bytes record);
  Fault take_shape(Bytes record);
  Fault take_place(Bytes record);
  Fault take_gap(Bytes record);
  Fault take_kernel(Bytes record);
  Fault take_memcpy(Bytes record);
  Fault take_memset(Bytes record);
  Fault take_api(Bytes record);
  Fault take_graph(Bytes record);
  Fault take_sync(Bytes record);
  Fault take_memory(Bytes record);
  Fault take_overhead(Bytes record);
  Fault take_stalls(Bytes record);
  Fault take_sampling(Bytes record);
  Fault take_cubin(Bytes record);

  bool is_place(uint32_t id) const { return id != 0 && id <= tables_.places; }
  std::optional<MonoSpan> find_span(uint64_t start_unix_ns, uint64_t duration_ns,
                                    int64_t oldest_ns);
  // By `add`, where the times make sense.
  template <class Add>
  Fault add_timed(uint64_t start_unix_ns, uint64_t duration_ns, Add add) {
    const auto span = find_span(start_unix_ns, duration_ns, kSessionOldestNs);
    if (!span) return Fault::kBadTime;
    add(*span);
    return Fault::kNone;
  }

  const SessionContext& context_;
  SessionTables& tables_;
  DecodedBatch& out_;
  SessionBatch& batch_;
};

// By kind.
const BatchReader::Row BatchReader::kRows[GPUPERF_SESSION_KIND_COUNT] = {
    {0, nullptr},  // there is no kind 0
    {sizeof(gpuperf_session_name), &BatchReader::take_name},
    {sizeof(gpuperf_session_shape), &BatchReader::take_shape},
    {kPlaceBytesMin, &BatchReader::take_place},
    {sizeof(gpuperf_session_gap), &BatchReader::take_gap},
    {sizeof(gpuperf_session_kernel), &BatchReader::take_kernel},
    {sizeof(gpuperf_session_memcpy), &BatchReader::take_memcpy},
    {sizeof(gpuperf_session_memset), &BatchReader::take_memset},
    {sizeof(gpuperf_session_api), &BatchReader::take_api},
    {sizeof(gpuperf_session_graph), &BatchReader::take_graph},
    {sizeof(gpuperf_session_sync), &BatchReader::take_sync},
    {sizeof(gpuperf_session_memory), &BatchReader::take_memory},
    {sizeof(gpuperf_session_overhead), &BatchReader::take_overhead},
    {sizeof(gpuperf_session_stalls), &BatchReader::take_stalls},
    {sizeof(gpuperf_session_sampling), &BatchReader::take_sampling},
    {sizeof(gpuperf_session_cubin), &BatchReader::take_cubin},
};

Status BatchReader::take(Bytes record, uint16_t kind) {
  const bool is_entry = (kind >= GPUPERF_SESSION_NAME && kind <= GPUPERF_SESSION_PLACE) ||
                        kind == GPUPERF_SESSION_CUBIN;
  if (!is_entry) ++out_.record_count;
  if (kind == 0 || kind >= GPUPERF_SESSION_KIND_COUNT) {
    ++out_.rejects.unknown_kind;
    return absl::OkStatus();
  }
  const Row& row = kRows[kind];
  if (record.size() < row.bytes) {
    return absl::InvalidArgumentError(
        fmt::format("record of kind {} has {} bytes", kind, record.size()));
  }
  switch ((this->*row.take)(record)) {
    case Fault::kNone:
      break;
    case Fault::kUnknownId:
      ++out_.rejects.unknown_id;
      break;
    case Fault::kBadValue:
      ++out_.rejects.bad_value;
      break;
    case Fault::kBadTime:
      ++out_.rejects.bad_time;
      break;
    case Fault::kMalformed:
      return absl::InvalidArgumentError(
          fmt::format("entry of a dictionary (kind {}) is out of order or damaged", kind));
  }
  return absl::OkStatus();
}

// Both ends are converted: a step of the wall clock between them is no part of the duration.
std::optional<MonoSpan> BatchReader::find_span(uint64_t start_unix_ns, uint64_t duration_ns,
                                               int64_t oldest_ns) {
  const auto latest_ns = static_cast<uint64_t>(context_.now_unix_ns + kSessionFutureNs);
  if (start_unix_ns == 0 || start_unix_ns > latest_ns || duration_ns > latest_ns - start_unix_ns) {
    return std::nullopt;
  }
  const auto start_ns = static_cast<int64_t>(start_unix_ns);
  if (start_ns < context_.now_unix_ns - oldest_ns) return std::nullopt;
  const auto start = context_.clock.mono_from_unix_ns(start_ns);
  const auto end = context_.clock.mono_from_unix_ns(start_ns + static_cast<int64_t>(duration_ns));
  if (start.mono_ns <= 0 || end.mono_ns < start.mono_ns) return std::nullopt;
  if (start.is_near_step || end.is_near_step) ++out_.near_step_count;
  return MonoSpan{.start_mono_ns = static_cast<uint64_t>(start.mono_ns),
                  .duration_ns = static_cast<uint64_t>(end.mono_ns - start.mono_ns)};
}

Fault BatchReader::take_name(Bytes bytes) {
  const auto name = copy_as<gpuperf_session_name>(bytes);
  const size_t padded = round_up_to_8(sizeof name + name.text_bytes);
  if (name.record.id != tables_.names + 1 || name.record.id > GPUPERF_NAMES_MAX ||
      name.text_bytes > GPUPERF_NAME_BYTES_MAX || padded > bytes.size() || name.cut > 1 ||
      name.pad != 0) {
    return Fault::kMalformed;
  }
  const Bytes text = bytes.subspan(sizeof name, name.text_bytes);
  const Bytes padding =
      bytes.subspan(sizeof name + text.size(), padded - sizeof name - text.size());
  if (std::ranges::find(text, std::byte{0}) != text.end() || !is_zero(padding)) {
    return Fault::kMalformed;
  }
  ++tables_.names;
  KernelName& kept = batch_.names.emplace_back(KernelName{.id = name.record.id});
  // The id stays known, so that its records are not lost as well.
  const bool has_room = text.size() <= context_.name_bytes_max - tables_.name_bytes;
  kept.is_cut = name.cut == 1 || !has_room;
  if (has_room) {
    tables_.name_bytes += text.size();
    kept.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
  } else {
    ++out_.rejects.names_full;
  }
  return Fault::kNone;
}

Fault BatchReader::take_shape(Bytes bytes) {
  const auto said = copy_as<gpuperf_session_shape>(bytes);
  if (said.record.id != tables_.shapes + 1 || said.record.id > GPUPERF_SHAPES_MAX) {
    return Fault::kMalformed;
  }
  ++tables_.shapes;
  LaunchShape shape{.id = said.record.id,
                    .shared_memory_bytes = said.shared_memory_bytes,
                    .registers_per_thread = said.registers_per_thread,
                    .local_memory_bytes = said.local_memory_bytes};
  std::ranges::copy(said.grid, shape.grid.begin());
  std::ranges::copy(said.block, shape.block.begin());
  std::ranges::copy(said.cluster, shape.cluster.begin());
  batch_.shapes.push_back(shape);
  return Fault::kNone;
}

Fault BatchReader::take_place(Bytes bytes) {
  gpuperf_session_place said = {};
  std::memcpy(&said, bytes.data(), std::min(bytes.size(), sizeof said));
  if (said.record.id != tables_.places + 1 || said.record.id > GPUPERF_PLACES_MAX ||
      said.pad != 0) {
    return Fault::kMalformed;
  }
  ++tables_.places;
  Place place{.id = said.record.id,
              .device = said.device,
              .context = said.context,
              .stream = said.stream,
              .sm = {.count = said.sm_count,
                     .threads = said.threads_per_sm,
                     .blocks = said.blocks_per_sm,
                     .registers = said.registers_per_sm,
                     .shared_memory_bytes = said.shared_memory_per_sm_bytes,
                     .shared_memory_reserved_bytes = said.shared_memory_reserved_bytes}};
  std::ranges::copy(said.device_uuid, place.device_uuid.begin());
  batch_.places.push_back(place);
  return Fault::kNone;
}

// A pause may have lasted for as long as the host is up.
Fault BatchReader::take_gap(Bytes bytes) {
  const auto gap = copy_as<gpuperf_session_gap>(bytes);
  if (gap.record.id >= GPUPERF_SESSION_CAUSE_COUNT) return Fault::kBadValue;
  const auto span = find_span(gap.start_unix_ns, gap.duration_ns, context_.now_unix_ns);
  if (!span) return Fault::kBadTime;
  batch_.gaps.push_back({.start_mono_ns = span->start_mono_ns,
                         .duration_ns = span->duration_ns,
                         .cause = gap.record.id});
  return Fault::kNone;
}

Fault BatchReader::take_kernel(Bytes bytes) {
  const auto kernel = copy_as<gpuperf_session_kernel>(bytes);
  constexpr uint32_t kFlags =
      GPUPERF_KERNEL_FROM_GRAPH | GPUPERF_KERNEL_DEVICE_LAUNCHED | GPUPERF_KERNEL_COOPERATIVE;
  if ((kernel.flags & ~kFlags) != 0) return Fault::kBadValue;
  if (kernel.name_id == 0 || kernel.name_id > tables_.names || kernel.shape_id == 0 ||
      kernel.shape_id > tables_.shapes || !is_place(kernel.place_id)) {
    return Fault::kUnknownId;
  }
  return add_timed(kernel.start_unix_ns, kernel.duration_ns, [&](const MonoSpan& span) {
    batch_.kernels.push_back({.start_mono_ns = span.start_mono_ns,
                              .duration_ns = span.duration_ns,
                              .correlation_id = kernel.record.id,
                              .name_id = kernel.name_id,
                              .shape_id = kernel.shape_id,
                              .place_id = kernel.place_id,
                              .graph_id = kernel.graph_id,
                              .node_id = kernel.node_id,
                              .flags = kernel.flags});
  });
}

Fault BatchReader::take_memcpy(Bytes bytes) {
  const auto copy = copy_as<gpuperf_session_memcpy>(bytes);
  if (copy.direction >= GPUPERF_MEMCPY_COUNT || copy.source_memory >= GPUPERF_MEMORY_COUNT ||
      copy.target_memory >= GPUPERF_MEMORY_COUNT || copy.flags > GPUPERF_MEMCPY_ASYNC) {
    return Fault::kBadValue;
  }
  if (!is_place(copy.place_id)) return Fault::kUnknownId;
  return add_timed(copy.start_unix_ns, copy.duration_ns, [&](const MonoSpan& span) {
    batch_.copies.push_back({.start_mono_ns = span.start_mono_ns,
                             .duration_ns = span.duration_ns,
                             .bytes = copy.copied_bytes,
                             .correlation_id = copy.record.id,
                             .place_id = copy.place_id,
                             .graph_id = copy.graph_id,
                             .node_id = copy.node_id,
                             .is_set = false,
                             .is_async = copy.flags == GPUPERF_MEMCPY_ASYNC,
                             .direction = copy.direction,
                             .source_memory = copy.source_memory,
                             .target_memory = copy.target_memory});
  });
}

Fault BatchReader::take_memset(Bytes bytes) {
  const auto set = copy_as<gpuperf_session_memset>(bytes);
  if (set.memory >= GPUPERF_MEMORY_COUNT || set.flags > GPUPERF_MEMCPY_ASYNC || set.pad != 0) {
    return Fault::kBadValue;
  }
  if (!is_place(set.place_id)) return Fault::kUnknownId;
  return add_timed(set.start_unix_ns, set.duration_ns, [&](const MonoSpan& span) {
    batch_.copies.push_back({.start_mono_ns = span.start_mono_ns,
                             .duration_ns = span.duration_ns,
                             .bytes = set.set_bytes,
                             .correlation_id = set.record.id,
                             .place_id = set.place_id,
                             .graph_id = set.graph_id,
                             .node_id = set.node_id,
                             .is_set = true,
                             .is_async = set.flags == GPUPERF_MEMCPY_ASYNC,
                             .target_memory = set.memory});
  });
}

Fault BatchReader::take_api(Bytes bytes) {
  const auto api = copy_as<gpuperf_session_api>(bytes);
  if ((api.domain != GPUPERF_API_RUNTIME && api.domain != GPUPERF_API_DRIVER) ||
      (api.flags & ~(GPUPERF_API_HOOKED | GPUPERF_API_NO_WORK)) != 0) {
    return Fault::kBadValue;
  }
  return add_timed(api.start_unix_ns, api.duration_ns, [&](const MonoSpan& span) {
    batch_.apis.push_back({.start_mono_ns = span.start_mono_ns,
                           .duration_ns = span.duration_ns,
                           .correlation_id = api.record.id,
                           .tid = context_.find_thread(api.tid),
                           .callback_id = api.callback_id,
                           .return_value = api.return_value,
                           .is_driver = api.domain == GPUPERF_API_DRIVER,
                           .is_hooked = (api.flags & GPUPERF_API_HOOKED) != 0,
                           .has_work = (api.flags & GPUPERF_API_NO_WORK) == 0});
  });
}

Fault BatchReader::take_graph(Bytes bytes) {
  const auto graph = copy_as<gpuperf_session_graph>(bytes);
  if (!is_place(graph.place_id)) return Fault::kUnknownId;
  return add_timed(graph.start_unix_ns, graph.duration_ns, [&](const MonoSpan& span) {
    batch_.graphs.push_back({.start_mono_ns = span.start_mono_ns,
                             .duration_ns = span.duration_ns,
                             .correlation_id = graph.record.id,
                             .graph_id = graph.graph_id,
                             .place_id = graph.place_id});
  });
}

Fault BatchReader::take_sync(Bytes bytes) {
  const auto sync = copy_as<gpuperf_session_sync>(bytes);
  if (sync.type >= GPUPERF_SYNC_COUNT) return Fault::kBadValue;
  if (!is_place(sync.place_id)) return Fault::kUnknownId;
  return add_timed(sync.start_unix_ns, sync.duration_ns, [&](const MonoSpan& span) {
    batch_.syncs.push_back({.start_mono_ns = span.start_mono_ns,
                            .duration_ns = span.duration_ns,
                            .correlation_id = sync.record.id,
                            .type = sync.type,
                            .place_id = sync.place_id});
  });
}

Fault BatchReader::take_memory(Bytes bytes) {
  const auto memory = copy_as<gpuperf_session_memory>(bytes);
  if ((memory.operation != GPUPERF_MEMORY_ALLOCATE && memory.operation != GPUPERF_MEMORY_RELEASE) ||
      memory.memory >= GPUPERF_MEMORY_COUNT || memory.from_pool > 1) {
    return Fault::kBadValue;
  }
  if (!is_place(memory.place_id)) return Fault::kUnknownId;
  return add_timed(memory.unix_ns, 0, [&](const MonoSpan& span) {
    batch_.memory.push_back({.mono_ns = span.start_mono_ns,
                             .address = memory.address,
                             .bytes = memory.size_bytes,
                             .place_id = memory.place_id,
                             .memory = memory.memory,
                             .is_release = memory.operation == GPUPERF_MEMORY_RELEASE,
                             .is_from_pool = memory.from_pool == 1});
  });
}

Fault BatchReader::take_overhead(Bytes bytes) {
  const auto overhead = copy_as<gpuperf_session_overhead>(bytes);
  if (overhead.type >= GPUPERF_OVERHEAD_COUNT || overhead.pad != 0) return Fault::kBadValue;
  return add_timed(overhead.start_unix_ns, overhead.duration_ns, [&](const MonoSpan& span) {
    batch_.overheads.push_back({.start_mono_ns = span.start_mono_ns,
                                .duration_ns = span.duration_ns,
                                .type = overhead.type});
  });
}

// Room for what the records are, so that no list is moved while it grows.
void reserve(Bytes records, SessionBatch& batch) {
  size_t counts[GPUPERF_SESSION_KIND_COUNT] = {};
  while (records.size() >= sizeof(gpuperf_session_record)) {
    const auto record = copy_as<gpuperf_session_record>(records);
    if (record.length_bytes < sizeof record || record.length_bytes > records.size()) break;
    if (record.kind < GPUPERF_SESSION_KIND_COUNT) ++counts[record.kind];
    records = records.subspan(record.length_bytes);
  }
  batch.kernels.reserve(counts[GPUPERF_SESSION_KERNEL]);
  batch.apis.reserve(counts[GPUPERF_SESSION_API]);
  batch.copies.reserve(counts[GPUPERF_SESSION_MEMCPY] + counts[GPUPERF_SESSION_MEMSET]);
  batch.syncs.reserve(counts[GPUPERF_SESSION_SYNC]);
  batch.memory.reserve(counts[GPUPERF_SESSION_MEMORY]);
}

Status check_front(Bytes packet, const gpuperf_batch& front) {
  if (front.records_bytes > packet.size() - sizeof front || front.records_bytes % 8 != 0 ||
      packet.size() % 8 != 0) {
    return absl::InvalidArgumentError(fmt::format("BATCH of {} bytes with {} bytes of records",
                                                  packet.size(), front.records_bytes));
  }
  return absl::OkStatus();
}

Fault BatchReader::take_stalls(Bytes bytes) {
  const auto said = copy_as<gpuperf_session_stalls>(bytes);
  const Bytes counts = bytes.subspan(sizeof said);
  if (said.count > GPUPERF_STALL_COUNT ||
      counts.size() < said.count * sizeof(gpuperf_session_stall)) {
    return Fault::kBadValue;
  }
  if (said.record.id == 0 || said.record.id > tables_.names) return Fault::kUnknownId;
  StallRecord record{.name_id = said.record.id,
                     .pc_offset_bytes = said.pc_offset_bytes,
                     .cubin_crc = said.cubin_crc};
  record.counts.reserve(said.count);
  for (uint32_t i = 0; i < said.count; ++i) {
    const auto count =
        copy_as<gpuperf_session_stall>(counts.subspan(i * sizeof(gpuperf_session_stall)));
    if (count.stall >= GPUPERF_STALL_COUNT || count.idle_samples > count.samples) {
      return Fault::kBadValue;
    }
    record.counts.push_back(
        {.stall = count.stall, .samples = count.samples, .idle_samples = count.idle_samples});
  }
  batch_.stalls.push_back(std::move(record));
  return Fault::kNone;
}

Fault BatchReader::take_sampling(Bytes bytes) {
  const auto said = copy_as<gpuperf_session_sampling>(bytes);
  if ((said.flags & ~GPUPERF_SAMPLING_BUFFER_FULL) != 0 || said.period > 31) {
    return Fault::kBadValue;
  }
  if (!is_place(said.record.id)) return Fault::kUnknownId;
  return add_timed(said.start_unix_ns, said.duration_ns, [&](const MonoSpan& span) {
    batch_.samplings.push_back({.start_mono_ns = span.start_mono_ns,
                                .duration_ns = span.duration_ns,
                                .samples = said.samples,
                                .dropped_samples = said.dropped_samples,
                                .other_samples = said.other_samples,
                                .place_id = said.record.id,
                                .period = said.period,
                                .was_full = said.flags != 0});
  });
}

LineFate to_fate(uint32_t state) {
  switch (static_cast<gpuperf_cubin_state>(state)) {
    case GPUPERF_CUBIN_COMPRESSED:
      return LineFate::kCompressed;
    case GPUPERF_CUBIN_TOO_LARGE:
      return LineFate::kTooLarge;
    case GPUPERF_CUBIN_FOUND:
    case GPUPERF_CUBIN_UNSEEN:
    case GPUPERF_CUBIN_STATE_COUNT:
      return LineFate::kUnseen;
  }
  return LineFate::kUnseen;
}

// The last piece makes it a value: images go no further than here.
Fault BatchReader::take_cubin(Bytes bytes) {
  const auto said = copy_as<gpuperf_session_cubin>(bytes);
  CubinParts& cubin = tables_.cubin;
  if (said.record.id >= GPUPERF_CUBIN_STATE_COUNT || said.pad != 0 ||
      said.piece_bytes > bytes.size() - sizeof said) {
    return Fault::kMalformed;
  }
  if (said.record.id != GPUPERF_CUBIN_FOUND) {
    if (said.size_bytes != 0 || said.piece_bytes != 0) return Fault::kMalformed;
    batch_.cubins.push_back({.cubin_crc = said.cubin_crc, .fate = to_fate(said.record.id)});
    return Fault::kNone;
  }
  if (cubin.size_bytes == 0) {
    if (said.size_bytes == 0 || said.size_bytes > GPUPERF_CUBIN_BYTES_MAX) return Fault::kMalformed;
    cubin.crc = said.cubin_crc;
    cubin.size_bytes = said.size_bytes;
    cubin.is_kept =
        context_.cubin_room.take(context_.holder, said.size_bytes) == Shares::Verdict::kTaken;
    if (cubin.is_kept) cubin.bytes.reserve(said.size_bytes);
  }
  if (said.cubin_crc != cubin.crc || said.size_bytes != cubin.size_bytes ||
      said.offset_bytes != cubin.received_bytes || said.piece_bytes == 0 ||
      said.piece_bytes > cubin.size_bytes - cubin.received_bytes) {
    return Fault::kMalformed;
  }
  cubin.received_bytes += said.piece_bytes;
  const Bytes piece = bytes.subspan(sizeof said, said.piece_bytes);
  if (cubin.is_kept) cubin.bytes.insert(cubin.bytes.end(), piece.begin(), piece.end());
  if (cubin.received_bytes < cubin.size_bytes) return Fault::kNone;
  if (cubin.is_kept) {
    batch_.cubins.push_back(read_cubin_lines(cubin.bytes, cubin.crc));
  } else {
    ++out_.rejects.cubins_full;
    batch_.cubins.push_back({.cubin_crc = cubin.crc, .fate = LineFate::kNoRoom});
  }
  give_back_cubin_room(context_.cubin_room, context_.holder, cubin);
  return Fault::kNone;
}

}  // namespace

void give_back_cubin_room(Shares& cubin_room, Shares::Holder holder, CubinParts& cubin) {
  if (cubin.is_kept) cubin_room.give_back(holder, cubin.size_bytes);
  cubin = {};
}

Result<DecodedBatch> decode_session_batch(Bytes packet, const SessionContext& context,
                                          SessionTables& tables) {
  if (packet.size() < sizeof(gpuperf_batch)) {
    return absl::InvalidArgumentError(fmt::format("BATCH of {} bytes", packet.size()));
  }
  const auto front = copy_as<gpuperf_batch>(packet);
  RETURN_IF_ERROR(check_front(packet, front));
  DecodedBatch decoded;
  decoded.batch.session_id = context.session_id;
  BatchReader reader(context, tables, decoded);
  // What a later version adds to the front stands before the records.
  Bytes rest = packet.last(front.records_bytes);
  reserve(rest, decoded.batch);
  uint32_t count = 0;
  for (; rest.size() >= sizeof(gpuperf_session_record); ++count) {
    const auto record = copy_as<gpuperf_session_record>(rest);
    if (record.length_bytes < sizeof record || record.length_bytes % 8 != 0 ||
        record.length_bytes > rest.size()) {
      return absl::InvalidArgumentError(
          fmt::format("record of {} bytes where {} are left", record.length_bytes, rest.size()));
    }
    RETURN_IF_ERROR(reader.take(rest.first(record.length_bytes), record.kind));
    rest = rest.subspan(record.length_bytes);
  }
  if (count != front.record_count) {
    return absl::InvalidArgumentError(
        fmt::format("BATCH of {} records says it has {}", count, front.record_count));
  }
  return decoded;
}

}  // namespace gpuperf
