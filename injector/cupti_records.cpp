#include "injector/cupti_records.h"

#include <algorithm>
#include <cstring>

#include "injector/clocks.h"
#include "injector/launch_hooks.h"

namespace gpuperf::injector {
namespace {

bool begins_with(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

uint32_t to_sync_type(CallClass call) {
  if (call == CallClass::kSyncEvent) return GPUPERF_SYNC_EVENT;
  if (call == CallClass::kSyncStream) return GPUPERF_SYNC_STREAM;
  return call == CallClass::kSyncContext ? GPUPERF_SYNC_CONTEXT : GPUPERF_SYNC_UNKNOWN;
}

uint8_t to_memory(uint32_t kind) {
  return static_cast<uint8_t>(kind < GPUPERF_MEMORY_COUNT ? kind : GPUPERF_MEMORY_UNKNOWN);
}

// Ids of hooked calls without work, because they failed or only wait. CUPTI reaches these numbers
// only after three billion calls.
constexpr uint32_t kLoneCallIds = 0xc0000000;

// Places left for contexts, once a process has had too many streams to tell each apart.
constexpr uint32_t kPlacesOfAnyStream = 64;

constexpr const char* kLostRecords = "CUPTI's records were lost";

}  // namespace

// Takes names from cuptiGetCallbackName: "cudaLaunchKernel_v7000", "cuMemcpyHtoDAsync_v2".
CallClass classify_call(const char* name) {
  const char* rest = begins_with(name, "cuda") ? name + 4 : begins_with(name, "cu") ? name + 2 : "";
  if (begins_with(rest, "GraphLaunch")) return CallClass::kGraphLaunch;
  static const char* const kMaking[] = {"GraphInstantiate", "GraphExecUpdate", "StreamBeginCapture",
                                        "StreamEndCapture", "GraphCreate",     "GraphClone"};
  for (const char* making : kMaking) {
    if (begins_with(rest, making)) return CallClass::kGraphMaking;
  }
  if (begins_with(rest, "LaunchHostFunc")) return CallClass::kOther;
  if (begins_with(rest, "Launch")) return CallClass::kLaunch;
  if (begins_with(rest, "Memcpy")) return CallClass::kCopy;
  if (begins_with(rest, "Memset")) return CallClass::kSet;
  if (begins_with(rest, "EventSynchronize")) return CallClass::kSyncEvent;
  if (begins_with(rest, "StreamSynchronize")) return CallClass::kSyncStream;
  if (begins_with(rest, "DeviceSynchronize") || begins_with(rest, "ThreadSynchronize") ||
      begins_with(rest, "CtxSynchronize")) {
    return CallClass::kSyncContext;
  }
  return CallClass::kOther;
}

void CuptiRecords::start_connection() {
  names_.clear();
  shapes_.clear();
  places_.clear();
  cubins_.start_connection();
  batch_.clear();
}

template <typename Record>
void CuptiRecords::put(Record record, uint16_t kind, uint32_t id) {
  record.record = {kind, sizeof(record), id};
  batch_.make_room(sizeof(record), now_ms_);
  batch_.add_record(&record, sizeof(record));
}

bool CuptiRecords::read_span(uint64_t start, uint64_t end, Span& span) {
  span.start_unix_ns = clock_.to_unix_ns(start);
  const uint64_t end_unix_ns = clock_.to_unix_ns(end);
  if (span.start_unix_ns == 0 || end_unix_ns == 0) {
    ++losses_[is_stopping_ ? GPUPERF_SESSION_LOSS_INCOMPLETE : GPUPERF_SESSION_LOSS_DEVICE_BUFFER];
    return false;
  }
  if (end_unix_ns < span.start_unix_ns) {
    ++losses_[GPUPERF_SESSION_LOSS_REVERSED];
    return false;
  }
  span.duration_ns = end_unix_ns - span.start_unix_ns;
  return true;
}

// A launch is sampled as a whole: its work carries the same correlation id.
bool CuptiRecords::is_sampled(uint32_t correlation_id) const {
  return sample_every_ == 1 || ((correlation_id * 2654435761u) >> 8) % sample_every_ == 0;
}

bool CuptiRecords::is_left_out(uint32_t correlation_id) {
  if (is_sampled(correlation_id)) return false;
  ++losses_[GPUPERF_SESSION_LOSS_SAMPLED];
  return true;
}

uint32_t CuptiRecords::take_id(uint32_t correlation_id) {
  const uint32_t id = id_base_ + correlation_id;
  last_id_ = std::max(last_id_, id);
  return id;
}

uint32_t CuptiRecords::find_name(const char* text) {
  bool is_new = false;
  size_t text_bytes = 0;
  const uint32_t name_id = names_.find_or_add(text, text_bytes, is_new);
  if (!is_new) return name_id;
  gpuperf_session_name name = {};
  const size_t padded_bytes = (text_bytes + 7) / 8 * 8;
  name.record = {GPUPERF_SESSION_NAME, static_cast<uint16_t>(sizeof(name) + padded_bytes), name_id};
  name.text_bytes = static_cast<uint16_t>(text_bytes);
  name.cut = text_bytes == GPUPERF_NAME_BYTES_MAX && text[text_bytes] != '\0';
  alignas(8) uint8_t entry[sizeof(name) + GPUPERF_NAME_BYTES_MAX] = {};
  std::memcpy(entry, &name, sizeof(name));
  std::memcpy(entry + sizeof(name), text, text_bytes);
  batch_.make_room(name.record.length_bytes, now_ms_);
  batch_.add_entry(entry, name.record.length_bytes);
  return name_id;
}

uint32_t CuptiRecords::find_place(uint32_t device, uint32_t context, uint32_t stream) {
  gpuperf_session_place place = {};
  if (device < std::size(devices_)) {
    gpuperf_session_place& known = devices_[device];
    if (!is_device_known_[device]) {
      known.device = device;
      read_device_uuid(device, known.device_uuid);
      read_sm_limits(known);
      is_device_known_[device] = true;
    }
    place = known;
  }
  place.record = {GPUPERF_SESSION_PLACE, sizeof(place), 0};
  place.device = device;
  place.context = context;
  place.stream = stream;
  bool is_new = false;
  uint32_t id = places_.find_or_add(place, is_new, kPlacesOfAnyStream);
  if (id == 0) {  // the process has had many streams: this one is not told from other late ones
    place.stream = kNoStream;
    id = places_.find_or_add(place, is_new);
  }
  if (id == 0) ++losses_[GPUPERF_SESSION_LOSS_TABLE_FULL];
  if (is_new) {
    place.record.id = id;
    batch_.make_room(sizeof(place), now_ms_);
    batch_.add_entry(&place, sizeof(place));
  }
  return id;
}

void CuptiRecords::decode(uint8_t* buffer, size_t valid_bytes, uint64_t now_ms) {
  now_ms_ = now_ms;
  CUpti_Activity* activity = nullptr;
  while (api_.cuptiActivityGetNextRecord(buffer, valid_bytes, &activity) == CUPTI_SUCCESS) {
    take(activity);
  }
}

void CuptiRecords::discard(uint8_t* buffer, size_t valid_bytes, gpuperf_session_loss loss) {
  CUpti_Activity* activity = nullptr;
  while (api_.cuptiActivityGetNextRecord(buffer, valid_bytes, &activity) == CUPTI_SUCCESS) {
    ++losses_[loss];
  }
  join_.break_off(kLostRecords);
}

void CuptiRecords::count(gpuperf_session_loss loss, uint64_t count) {
  losses_[loss] += count;
  if (count > 0) join_.break_off(kLostRecords);
}

void CuptiRecords::add_hold(uint64_t start_unix_ns, uint64_t end_unix_ns, uint64_t now_ms) {
  if (end_unix_ns < start_unix_ns) return;
  now_ms_ = now_ms;
  gpuperf_session_overhead record = {};
  record.start_unix_ns = start_unix_ns;
  record.duration_ns = end_unix_ns - start_unix_ns;
  record.type = GPUPERF_OVERHEAD_WINDOW;
  cupti_overhead_ns_ += record.duration_ns;
  put(record, GPUPERF_SESSION_OVERHEAD, 0);
}

void CuptiRecords::add_gap(gpuperf_session_cause cause, uint64_t start_unix_ns,
                           uint64_t end_unix_ns, uint64_t now_ms) {
  now_ms_ = now_ms;
  if (end_unix_ns < start_unix_ns) return;
  gpuperf_session_gap gap = {};
  gap.start_unix_ns = start_unix_ns;
  gap.duration_ns = end_unix_ns - start_unix_ns;
  gap.record = {GPUPERF_SESSION_GAP, sizeof(gap), static_cast<uint32_t>(cause)};
  batch_.make_room(sizeof(gap), now_ms_);
  batch_.add_entry(&gap, sizeof(gap));
}

void CuptiRecords::expect_samples(bool is_connected, uint64_t now_ms) {
  now_ms_ = now_ms;
  sampled_since_unix_ns_ = sampled_until_unix_ns_;
  sampled_until_unix_ns_ = read_unix_ns();
  has_sample_reader_ = is_connected;
}

void CuptiRecords::take(const PcSampler::Instruction& instruction) {
  if (!has_sample_reader_) {
    ++losses_[GPUPERF_SESSION_LOSS_NO_DAEMON];
    return;
  }
  const uint32_t name_id = find_name(instruction.function);
  if (name_id == 0) {
    ++losses_[GPUPERF_SESSION_LOSS_TABLE_FULL];
    return;
  }
  struct {
    gpuperf_session_stalls head;
    gpuperf_session_stall stalls[GPUPERF_STALL_COUNT];
  } record = {};
  const size_t count = std::min(instruction.stalls.size(), std::size(record.stalls));
  const size_t length_bytes = sizeof(record.head) + count * sizeof(record.stalls[0]);
  record.head.record = {GPUPERF_SESSION_STALLS, static_cast<uint16_t>(length_bytes), name_id};
  record.head.cubin_crc = instruction.cubin_crc;
  record.head.pc_offset_bytes = static_cast<uint32_t>(instruction.pc_offset_bytes);
  record.head.count = static_cast<uint32_t>(count);
  std::copy_n(instruction.stalls.begin(), count, record.stalls);
  batch_.make_room(length_bytes, now_ms_);
  batch_.add_record(&record, length_bytes);
  if (!cubins_.want(instruction.cubin_crc)) ++losses_[GPUPERF_SESSION_LOSS_TABLE_FULL];
}

void CuptiRecords::take(const PcSampler::Total& total) {
  if (!has_sample_reader_) {
    ++losses_[GPUPERF_SESSION_LOSS_NO_DAEMON];
    return;
  }
  gpuperf_session_sampling record = {};
  record.start_unix_ns = sampled_since_unix_ns_;
  record.duration_ns =
      sampled_until_unix_ns_ - std::min(sampled_since_unix_ns_, sampled_until_unix_ns_);
  record.samples = total.samples;
  record.dropped_samples = total.dropped_samples;
  record.other_samples = total.other_samples;
  record.period = PcSampler::kPeriod;
  record.flags = total.was_full ? GPUPERF_SAMPLING_BUFFER_FULL : 0;
  const uint32_t place_id = find_place(total.device, 0, kNoStream);
  if (place_id != 0) put(record, GPUPERF_SESSION_SAMPLING, place_id);
}

void CuptiRecords::take(const CUpti_Activity* activity) {
  switch (static_cast<uint32_t>(activity->kind)) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return take_kernel(activity);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return take_memcpy(activity);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return take_memcpy_peer(activity);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return take_memset(activity);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return take_api(activity, false);
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return take_api(activity, true);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return take_graph(activity);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return take_memory(activity);
    default:
      ++losses_[GPUPERF_SESSION_LOSS_UNKNOWN_RECORD];
  }
}

void CuptiRecords::take_kernel(const CUpti_Activity* activity) {
  const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(activity);
  const uint32_t id = take_id(kernel->correlationId);
  ++kernel_count_;
  note_working(kernel->deviceId);
  if (kernel->graphNodeId != 0) ++node_count_;
  Span span;
  if (!read_span(kernel->start, kernel->end, span)) return note_unknown_work();
  if (kernel->graphNodeId == 0) {
    const auto to_length = [](int32_t length) { return static_cast<uint32_t>(length); };
    note_work(
        CallKind::kLaunch, id, kernel->streamId, span,
        make_size(
            {to_length(kernel->gridX), to_length(kernel->gridY), to_length(kernel->gridZ)},
            {to_length(kernel->blockX), to_length(kernel->blockY), to_length(kernel->blockZ)}));
  }
  if (is_left_out(id)) return;
  const uint32_t name_id = find_name(kernel->name != nullptr ? kernel->name : "");
  bool is_new = false;
  gpuperf_session_shape shape = {};
  shape.record = {GPUPERF_SESSION_SHAPE, sizeof(shape), 0};
  shape.grid[0] = static_cast<uint32_t>(kernel->gridX);
  shape.grid[1] = static_cast<uint32_t>(kernel->gridY);
  shape.grid[2] = static_cast<uint32_t>(kernel->gridZ);
  shape.block[0] = static_cast<uint32_t>(kernel->blockX);
  shape.block[1] = static_cast<uint32_t>(kernel->blockY);
  shape.block[2] = static_cast<uint32_t>(kernel->blockZ);
  shape.cluster[0] = kernel->clusterX;
  shape.cluster[1] = kernel->clusterY;
  shape.cluster[2] = kernel->clusterZ;
  shape.shared_memory_bytes =
      static_cast<uint32_t>(kernel->staticSharedMemory + kernel->dynamicSharedMemory);
  shape.registers_per_thread = kernel->registersPerThread;
  shape.local_memory_bytes = kernel->localMemoryPerThread;
  const uint32_t shape_id = shapes_.find_or_add(shape, is_new);
  if (is_new) {
    shape.record.id = shape_id;
    batch_.make_room(sizeof(shape), now_ms_);
    batch_.add_entry(&shape, sizeof(shape));
  }
  if (name_id == 0 || shape_id == 0) {
    ++losses_[GPUPERF_SESSION_LOSS_TABLE_FULL];
    return;
  }
  gpuperf_session_kernel record = {};
  record.start_unix_ns = span.start_unix_ns;
  record.duration_ns = span.duration_ns;
  record.name_id = name_id;
  record.shape_id = shape_id;
  record.place_id = find_place(kernel->deviceId, kernel->contextId, kernel->streamId);
  if (record.place_id == 0) return;
  if (kernel->graphNodeId != 0) {
    record.flags |= GPUPERF_KERNEL_FROM_GRAPH;
    record.graph_id = kernel->graphId;
    record.node_id = static_cast<uint32_t>(kernel->graphNodeId);
  }
  if (kernel->launchType == CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE ||
      kernel->launchType == CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_MULTI_DEVICE) {
    record.flags |= GPUPERF_KERNEL_COOPERATIVE;
  }
  put(record, GPUPERF_SESSION_KERNEL, id);
}

// Copies within a device and between two, for which CUPTI has different records.
template <typename Copy>
void CuptiRecords::take_copy(const Copy& copy, uint8_t direction) {
  const uint32_t id = take_id(copy.correlationId);
  Span span;
  if (!read_span(copy.start, copy.end, span)) return note_unknown_work();
  if (copy.graphNodeId == 0) {
    note_work(CallKind::kCopy, id, copy.streamId, span, copy.bytes);
  }
  if (is_left_out(id)) return;
  gpuperf_session_memcpy record = {};
  record.start_unix_ns = span.start_unix_ns;
  record.duration_ns = span.duration_ns;
  record.copied_bytes = copy.bytes;
  record.direction = direction;
  record.source_memory = to_memory(copy.srcKind);
  record.target_memory = to_memory(copy.dstKind);
  record.flags = (copy.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0 ? GPUPERF_MEMCPY_ASYNC : 0;
  record.graph_id = copy.graphNodeId != 0 ? copy.graphId : 0;
  record.node_id = static_cast<uint32_t>(copy.graphNodeId);
  record.place_id = find_place(copy.deviceId, copy.contextId, copy.streamId);
  if (record.place_id != 0) put(record, GPUPERF_SESSION_MEMCPY, id);
}

void CuptiRecords::take_memcpy(const CUpti_Activity* activity) {
  const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(activity);
  take_copy(copy,
            static_cast<uint8_t>(copy.copyKind < GPUPERF_MEMCPY_COUNT ? copy.copyKind
                                                                      : GPUPERF_MEMCPY_UNKNOWN));
}

void CuptiRecords::take_memcpy_peer(const CUpti_Activity* activity) {
  take_copy(*reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(activity),
            GPUPERF_MEMCPY_PEER_TO_PEER);
}

void CuptiRecords::take_memset(const CUpti_Activity* activity) {
  const auto* set = reinterpret_cast<const CUpti_ActivityMemset4*>(activity);
  const uint32_t id = take_id(set->correlationId);
  Span span;
  if (!read_span(set->start, set->end, span)) return note_unknown_work();
  if (set->graphNodeId == 0) {
    note_work(CallKind::kSet, id, set->streamId, span, set->bytes);
  }
  if (is_left_out(id)) return;
  gpuperf_session_memset record = {};
  record.start_unix_ns = span.start_unix_ns;
  record.duration_ns = span.duration_ns;
  record.set_bytes = set->bytes;
  record.memory = to_memory(set->memoryKind);
  record.flags = (set->flags & CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC) != 0 ? GPUPERF_MEMCPY_ASYNC : 0;
  record.graph_id = set->graphNodeId != 0 ? set->graphId : 0;
  record.node_id = static_cast<uint32_t>(set->graphNodeId);
  record.place_id = find_place(set->deviceId, set->contextId, set->streamId);
  if (record.place_id != 0) put(record, GPUPERF_SESSION_MEMSET, id);
}

void CuptiRecords::put_sync(uint32_t type, uint64_t start_unix_ns, uint64_t duration_ns,
                            uint32_t id) {
  if ((kinds_ & GPUPERF_SESSION_BIT(GPUPERF_SESSION_SYNC)) == 0) return;
  gpuperf_session_sync sync = {};
  sync.start_unix_ns = start_unix_ns;
  sync.duration_ns = duration_ns;
  sync.type = type;
  sync.place_id = find_place(UINT32_MAX, UINT32_MAX, kNoStream);
  if (sync.place_id != 0) put(sync, GPUPERF_SESSION_SYNC, id);
}

void CuptiRecords::take_api(const CUpti_Activity* activity, bool is_driver) {
  const auto* call = reinterpret_cast<const CUpti_ActivityAPI*>(activity);
  const uint32_t id = take_id(call->correlationId);
  ++call_count_;
  const CallClass* classes = is_driver ? calls_.driver : calls_.runtime;
  const CallClass call_class =
      call->cbid < CallClasses::kCountMax ? classes[call->cbid] : CallClass::kOther;
  if (call_class == CallClass::kGraphLaunch) ++graph_launch_count_;
  Span span;
  if (is_left_out(id) || !read_span(call->start, call->end, span)) return;
  // CUPTI's own records of waits cost every launch 0.2 us on an H200, whether anyone waits or not.
  // The record of the waiting call says the same.
  const uint32_t sync_type = to_sync_type(call_class);
  if (sync_type != GPUPERF_SYNC_UNKNOWN) {
    put_sync(sync_type, span.start_unix_ns, span.duration_ns, id);
  }
  if ((kinds_ & GPUPERF_SESSION_BIT(GPUPERF_SESSION_API)) == 0) return;
  gpuperf_session_api record = {};
  record.start_unix_ns = span.start_unix_ns;
  record.duration_ns = span.duration_ns;
  record.tid = call->threadId;
  record.callback_id = call->cbid;
  record.return_value = call->returnValue;
  record.domain = is_driver ? GPUPERF_API_DRIVER : GPUPERF_API_RUNTIME;
  put(record, GPUPERF_SESSION_API, id);
}

void CuptiRecords::hook_calls(bool from_first_launch) {
  if (are_calls_hooked_) return;
  if (from_first_launch) {
    // Those that were in flight when the log ended.
    take_calls();
    join_.restart(read_unix_ns());
  }
  are_calls_hooked_ = were_calls_hooked_ = true;
  set_call_log(api_.cuptiGetStreamIdEx);
}

void CuptiRecords::finish_hooked_calls(uint64_t now_ms) {
  if (!are_calls_hooked_) return;
  join_calls(false, now_ms);
  join_.finish(*this);
  lose_calls(join_.take_lost());
  are_calls_hooked_ = false;
}

void CuptiRecords::drop_hooked_calls() {
  if (!are_calls_hooked_) return;
  are_calls_hooked_ = false;
  set_call_log(nullptr);
  join_.drop();
  lose_calls(join_.take_lost());
}

void CuptiRecords::lose_calls(uint64_t count) {
  if ((kinds_ & GPUPERF_SESSION_BIT(GPUPERF_SESSION_API)) == 0) return;
  losses_[GPUPERF_SESSION_LOSS_INCOMPLETE] += count;
}

void CuptiRecords::note_work(CallKind kind, uint32_t correlation_id, uint32_t stream,
                             const Span& span, uint64_t size) {
  if (!are_calls_hooked_) return;
  join_.add(CallJoin::Work{.start_unix_ns = span.start_unix_ns,
                           .end_unix_ns = span.start_unix_ns + span.duration_ns,
                           .size = size,
                           .correlation_id = correlation_id,
                           .stream = stream,
                           .kind = kind});
}

// Work cut off at the end of collection is the last of its stream and breaks nothing.
void CuptiRecords::note_unknown_work() {
  if (!is_stopping_) join_.break_off("GPU work without a time");
}

void CuptiRecords::take_logged(const LoggedCall& call) {
  if (!are_calls_hooked_) return lose_calls(1);
  const CallJoin::Call converted = {.start_unix_ns = call.start_mono_ns + mono_to_unix_ns_,
                                    .size = call.size,
                                    .duration_ns = call.duration_ns,
                                    .stream = call.stream,
                                    .tid = call.tid,
                                    .result = call.result,
                                    .entry = call.entry};
  if (get_call_kind(call.entry) == CallKind::kGraph) ++graph_launch_count_;
  const bool waits = get_call_kind(call.entry) == CallKind::kWait;
  if (call.result == 0 && !waits) return join_.add(converted);
  const uint32_t id = kLoneCallIds + static_cast<uint32_t>(lone_calls_++ & ~kLoneCallIds);
  put_call(converted, id, GPUPERF_API_HOOKED | GPUPERF_API_NO_WORK);
  if (waits && is_sampled(id)) {
    put_sync(get_sync_type(call.entry), converted.start_unix_ns, converted.duration_ns, id);
  }
}

void CuptiRecords::take_calls() {
  if (!were_calls_hooked_) return;
  mono_to_unix_ns_ = read_mono_to_unix_ns();
  const uint64_t lost = take_logged_calls(
      [](void* self, const LoggedCall& call) {
        static_cast<CuptiRecords*>(self)->take_logged(call);
      },
      this);
  if (lost != lost_calls_) join_.break_off("calls came faster than they were taken");
  lost_calls_ = lost;
}

void CuptiRecords::join_calls(bool are_records_complete, uint64_t now_ms) {
  if (!were_calls_hooked_) return;
  now_ms_ = now_ms;
  const uint64_t unix_ns = read_unix_ns();
  take_calls();
  if (are_calls_hooked_ && are_records_complete) join_.join(unix_ns, *this);
  lose_calls(join_.take_lost());
}

void CuptiRecords::take(const CallJoin::Call& call, uint32_t correlation_id) {
  put_call(call, correlation_id, GPUPERF_API_HOOKED);
}

// Writes a driver call as CUPTI's own record would.
void CuptiRecords::put_call(const CallJoin::Call& call, uint32_t id, uint16_t flags) {
  ++call_count_;
  if ((kinds_ & GPUPERF_SESSION_BIT(GPUPERF_SESSION_API)) == 0) return;
  if (calls_.of_entry[call.entry] == 0 || !is_sampled(id)) return;
  gpuperf_session_api record = {};
  record.start_unix_ns = call.start_unix_ns;
  record.duration_ns = call.duration_ns;
  record.tid = call.tid;
  record.callback_id = calls_.of_entry[call.entry];
  record.return_value = call.result;
  record.domain = GPUPERF_API_DRIVER;
  record.flags = flags;
  put(record, GPUPERF_SESSION_API, id);
}

void CuptiRecords::take_graph(const CUpti_Activity* activity) {
  const auto* graph = reinterpret_cast<const CUpti_ActivityGraphTrace*>(activity);
  const uint32_t id = take_id(graph->correlationId);
  note_working(graph->deviceId);
  Span span;
  if (!read_span(graph->start, graph->end, span)) return note_unknown_work();
  note_work(CallKind::kGraph, id, graph->streamId, span, 0);
  if (is_left_out(id)) return;
  gpuperf_session_graph record = {};
  record.start_unix_ns = span.start_unix_ns;
  record.duration_ns = span.duration_ns;
  record.graph_id = graph->graphId;
  record.place_id = find_place(graph->deviceId, graph->contextId, graph->streamId);
  if (record.place_id != 0) put(record, GPUPERF_SESSION_GRAPH, id);
}

void CuptiRecords::take_memory(const CUpti_Activity* activity) {
  const auto* memory = reinterpret_cast<const CUpti_ActivityMemory3*>(activity);
  const bool is_allocation =
      memory->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  const bool is_release =
      memory->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  if (!is_allocation && !is_release) {
    ++losses_[GPUPERF_SESSION_LOSS_UNKNOWN_RECORD];
    return;
  }
  gpuperf_session_memory record = {};
  record.unix_ns = clock_.to_unix_ns(memory->timestamp);
  if (record.unix_ns == 0) {
    ++losses_[GPUPERF_SESSION_LOSS_DEVICE_BUFFER];
    return;
  }
  record.address = memory->address;
  record.size_bytes = memory->bytes;
  record.operation = is_release ? GPUPERF_MEMORY_RELEASE : GPUPERF_MEMORY_ALLOCATE;
  record.memory = to_memory(memory->memoryKind);
  record.from_pool =
      memory->memoryPoolConfig.memoryPoolType != CUPTI_ACTIVITY_MEMORY_POOL_TYPE_INVALID;
  record.place_id = find_place(memory->deviceId, memory->contextId, memory->streamId);
  if (record.place_id != 0) put(record, GPUPERF_SESSION_MEMORY, take_id(memory->correlationId));
}

}  // namespace gpuperf::injector
