#include "daemon/state/gpu_state.h"

#include <algorithm>
#include <memory>
#include <tuple>

namespace gpuperf {
namespace {

// A dictionary's ids ascend without a gap; room for them is made at this pace, not to the far end
// of what one bad id names.
constexpr size_t kLargestIdStep = 4'096;

// Modules of a process whose samples say for lack of room that their lines are not known.
constexpr size_t kCubinsMax = 1'024;

constexpr int64_t kSweepPeriodNs = 10'000'000'000;  // some ms for 16,384 names

CopyTotals& get_copy(std::vector<CopyTotals>& copies, const CopyRecord& record) {
  const CopyTotals key{.is_set = record.is_set,
                       .direction = record.direction,
                       .source_memory = record.source_memory,
                       .target_memory = record.target_memory};
  const auto order = [](const CopyTotals& copy) {
    return std::make_tuple(copy.is_set, copy.direction, copy.source_memory, copy.target_memory);
  };
  const auto place = std::ranges::lower_bound(copies, order(key), {}, order);
  if (place != copies.end() && order(*place) == order(key)) return *place;
  return *copies.insert(place, key);
}

// Whether an id comes next, or nearly.
bool is_believable(uint32_t id, size_t next, size_t max) {
  return id <= max && id < next + kLargestIdStep;
}

// False = there is no room for it.
template <typename Entry>
bool make_room(SessionMemory::Account& account, std::vector<Entry>& entries, uint32_t id,
               Entry empty) {
  if (id < entries.size()) return true;
  // Twice: a vector grows by doubling.
  if (!account.take(2 * (id + size_t{1} - entries.size()) * sizeof(Entry))) return false;
  entries.resize(id + size_t{1}, empty);
  return true;
}

template <typename Record, typename Take>
void for_each_prefetched(const LaunchJoin& join, const std::vector<Record>& records, Take take) {
  constexpr size_t kAhead = 8;  // about a microsecond: longer than memory takes
  for (size_t i = 0; i < records.size(); ++i) {
    if (i + kAhead < records.size()) join.prefetch(records[i + kAhead].correlation_id);
    take(records[i]);
  }
}

bool is_in_use(const GpuProcess& process, uint32_t device) {
  return process.open_sessions > 0 &&
         std::ranges::find(process.devices, device) != process.devices.end();
}

}  // namespace

void GpuStatistics::follow(SessionRegistry& sessions) {
  sessions.add([this](SessionEntry& entry) { return std::make_unique<Session>(*this, entry); });
}

GpuStatistics::Session::Session(GpuStatistics& its_statistics, SessionEntry& its_entry)
    : statistics(its_statistics),
      entry(its_entry),
      process(statistics.processes_.open(entry)),
      account(entry.memory(), entry.holder()),
      join(statistics.drops_, LaunchJoin::kMaxEntries, &account) {}

void GpuStatistics::Session::take_batch(const SessionBatch& batch, int64_t now_mono_ns) {
  statistics.apply(*this, batch, now_mono_ns);
  show_join();
}

void GpuStatistics::Session::take_status(const SessionStatus& status, int64_t) {
  sample_every = std::max<uint32_t>(status.sample_every, 1);
  const auto has = [&](uint32_t levels) { return (status.level & levels) != 0; };
  sends_apis = has(GPUPERF_SESSION_LEVEL_APIS | GPUPERF_SESSION_LEVEL_ALL_APIS);
  expects_work = !has(GPUPERF_SESSION_LEVEL_ALL_APIS) && sample_every == 1 &&
                 has(GPUPERF_SESSION_LEVEL_KERNELS) && has(GPUPERF_SESSION_LEVEL_COPIES) &&
                 has(GPUPERF_SESSION_LEVEL_GRAPHS | GPUPERF_SESSION_LEVEL_NODES);
}

void GpuStatistics::Session::close(const SessionClosed& closed) {
  statistics.processes_.close(process, closed.mono_ns);
  statistics.is_sweep_due_ = true;
}

void GpuStatistics::Session::expire(int64_t now_mono_ns) {
  for (const LaunchJoin::Match& match : join.expire(now_mono_ns)) statistics.join(*this, match);
  show_join();
  const uint64_t collected = get_collected_ns(entry.row(), now_mono_ns);
  for (const uint32_t device : process.devices) {
    statistics.activities_.note_collected(device, collected - collected_ns);
  }
  collected_ns = collected;
}

void GpuStatistics::Session::show_join() {
  if (entry.row().join != join_totals) entry.change().join = join_totals;
}

void GpuStatistics::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  processes_.expire(now_mono_ns);
  texts_.allow_sweep();
  activities_.expire(now_mono_ns);
  if (!is_sweep_due_ || now_mono_ns - swept_mono_ns_ < kSweepPeriodNs) return;
  is_sweep_due_ = false;
  swept_mono_ns_ = now_mono_ns;
  texts_.sweep();
}

void GpuStatistics::apply(Session& session, const SessionBatch& batch, int64_t now_mono_ns) {
  learn(session, batch);
  session.is_full = !session.process.account.has_room();
  for (const SessionGap& gap : batch.gaps) apply(session, gap);
  // Calls first: then most kernels find theirs, and need not wait.
  for_each_prefetched(session.join, batch.apis,
                      [&](const ApiRecord& record) { apply(session, record, now_mono_ns); });
  for_each_prefetched(session.join, batch.kernels,
                      [&](const KernelRecord& record) { apply(session, record, now_mono_ns); });
  for (const GraphRecord& record : batch.graphs) apply(session, record, now_mono_ns);
  for (const CopyRecord& record : batch.copies) apply(session, record, now_mono_ns);
  for (const SyncRecord& record : batch.syncs) apply(session, record);
  for (const MemoryRecord& record : batch.memory) apply(session, record);
  for (const OverheadRecord& record : batch.overheads) apply(session, record);
  for (const StallRecord& record : batch.stalls) apply(session, record);
  for (const SamplingRecord& record : batch.samplings) apply(session, record);
  for (const CubinLines& cubin : batch.cubins) learn(session, cubin);
}

void GpuStatistics::learn(Session& session, const SessionBatch& batch) {
  const uint32_t uid = session.entry.holder().uid;
  for (const KernelName& name : batch.names) {
    const size_t next = std::max(session.kernels.size(), session.last_unkept_name + size_t{1});
    if (!is_believable(name.id, next, GPUPERF_NAMES_MAX)) {
      drops_.add(DropCause::kSessionBadIds);
      continue;
    }
    if (!make_room(session.account, session.kernels, name.id, kNone)) {
      session.last_unkept_name = std::max(session.last_unkept_name, name.id);
      continue;
    }
    // Without text: there was no room for it on the way.
    const bool is_nameless = name.text.empty() || !session.process.account.has_room();
    const KernelTextPtr text =
        is_nameless ? KernelTexts::get_other() : texts_.get(name.text, name.is_cut, uid);
    session.kernels[name.id] = processes_.get_kernel(session.process, text);
  }
  for (const Place& place : batch.places) learn(session, place);
  for (const LaunchShape& shape : batch.shapes) learn(session, shape);
}

void GpuStatistics::learn(Session& session, const LaunchShape& shape) {
  if (!is_believable(shape.id, session.shapes.size(), GPUPERF_SHAPES_MAX) ||
      !make_room(session.account, session.shapes, shape.id, LaunchShape())) {
    return;  // its kernels have no shape
  }
  session.shapes[shape.id] = shape;
}

void GpuStatistics::learn(Session& session, const Place& place) {
  if (!is_believable(place.id, session.places.size(), GPUPERF_PLACES_MAX) ||
      !make_room(session.account, session.places, place.id, PlaceFacts())) {
    return drops_.add(DropCause::kSessionBadIds);
  }
  GpuProcess& process = session.process;
  const uint32_t device = activities_.get_device(place.device_uuid, process.row->process,
                                                 place.device, session.entry.holder().uid);
  session.places[place.id] = {.uuid = place.device_uuid,
                              .ordinal = place.device,
                              .device = device,
                              .is_known = true,
                              .sm = place.sm};
  if (device != GpuActivities::kNone && std::ranges::count(process.devices, device) == 0) {
    process.devices.push_back(device);
  }
}

const GpuStatistics::PlaceFacts* GpuStatistics::find_place(const Session& session,
                                                           uint32_t place_id) {
  if (place_id < session.places.size() && session.places[place_id].is_known) {
    return &session.places[place_id];
  }
  drops_.add(DropCause::kSessionBadIds);
  return nullptr;
}

void GpuStatistics::apply(Session& session, const ApiRecord& record, int64_t now_mono_ns) {
  GpuProcessTotals& totals = GpuProcesses::change(session.process).totals;
  ++totals.api_calls;
  if (record.return_value != 0) {
    ++totals.api_errors;
    return;  // it caused nothing
  }
  if (!record.has_work) return;
  const auto match =
      session.join.add(LaunchJoin::Api{.correlation_id = record.correlation_id,
                                       .start_ns = record.start_mono_ns,
                                       .end_ns = record.start_mono_ns + record.duration_ns,
                                       .expects_work = session.expects_work},
                       now_mono_ns);
  if (match) join(session, *match);
}

void GpuStatistics::apply(Session& session, const KernelRecord& record, int64_t now_mono_ns) {
  const PlaceFacts* place = find_place(session, record.place_id);
  if (place == nullptr) return;
  uint32_t kernel =
      record.name_id < session.kernels.size() ? session.kernels[record.name_id] : kNone;
  const bool is_unkept = kernel == kNone && record.name_id <= session.last_unkept_name;
  if (kernel == kNone && !is_unkept) return drops_.add(DropCause::kSessionBadIds);
  if (session.is_full || is_unkept) {
    drops_.add(DropCause::kSessionMemoryFull);
    kernel = processes_.get_kernel(session.process, KernelTexts::get_other());
  }
  KernelTotals& totals = GpuProcesses::change_kernel(session.process, kernel);
  SessionMemory::Account& account = session.process.account;
  show_launch(session, kernel, record, *place);
  add_duration(account, totals.duration, record.duration_ns);
  totals.estimated_launches += uint64_t{session.sample_every} * session.entry.row().window_weight;
  const bool is_nccl = session.process.kernels[kernel].row->name->is_nccl;
  activities_.add(place->device,
                  is_nccl ? GpuActivities::Kind::kNcclKernel : GpuActivities::Kind::kKernel,
                  record.start_mono_ns, record.duration_ns, now_mono_ns);
  const bool is_node = record.graph_id != 0 || (record.flags & GPUPERF_KERNEL_FROM_GRAPH) != 0;
  if (is_node) ++totals.graph_launches;
  // A kernel that launches kernels gives them its own id, and no call of the CPU is behind them.
  if ((record.flags & GPUPERF_KERNEL_DEVICE_LAUNCHED) != 0 || !session.sends_apis) return;
  LaunchJoin::Work work{
      .correlation_id = record.correlation_id, .start_ns = record.start_mono_ns, .target = kernel};
  if (is_node) {
    work.kind = LaunchJoin::WorkKind::kNode;
    work.target = processes_.get_graph(session.process, record.graph_id) | kGraphTarget;
  }
  if (const auto match = session.join.add(work, now_mono_ns)) join(session, *match);
}

void GpuStatistics::apply(Session& session, const GraphRecord& record, int64_t now_mono_ns) {
  const PlaceFacts* place = find_place(session, record.place_id);
  if (place == nullptr) return;
  if (session.is_full) return drops_.add(DropCause::kSessionMemoryFull);
  const uint32_t graph = processes_.get_graph(session.process, record.graph_id);
  add_duration(session.process.account,
               GpuProcesses::change(session.process).totals.graphs[graph].duration,
               record.duration_ns);
  activities_.add(place->device, GpuActivities::Kind::kGraph, record.start_mono_ns,
                  record.duration_ns, now_mono_ns);
  if (!session.sends_apis) return;
  const auto match = session.join.add(LaunchJoin::Work{.correlation_id = record.correlation_id,
                                                       .start_ns = record.start_mono_ns,
                                                       .target = graph | kGraphTarget},
                                      now_mono_ns);
  if (match) join(session, *match);
}

void GpuStatistics::apply(Session& session, const CopyRecord& record, int64_t now_mono_ns) {
  const PlaceFacts* place = find_place(session, record.place_id);
  if (place == nullptr) return;
  if (session.is_full) return drops_.add(DropCause::kSessionMemoryFull);
  std::vector<CopyTotals>& copies = GpuProcesses::change(session.process).totals.copies;
  const size_t before = copies.size();
  CopyTotals& totals = get_copy(copies, record);
  session.process.account.add(2 * (copies.size() - before) * sizeof(CopyTotals));
  totals.bytes += record.bytes;
  add_duration(session.process.account, totals.duration, record.duration_ns);
  activities_.add(place->device, GpuActivities::Kind::kCopy, record.start_mono_ns,
                  record.duration_ns, now_mono_ns);
  // The launch of a graph is joined with the graph's kernels.
  if (record.graph_id != 0 || !session.sends_apis) return;
  // So that its call is not taken for one without any work.
  (void)session.join.add(LaunchJoin::Work{.correlation_id = record.correlation_id,
                                          .start_ns = record.start_mono_ns,
                                          .target = kNone,
                                          .kind = LaunchJoin::WorkKind::kSeveral},
                         now_mono_ns);
}

void GpuStatistics::apply(Session& session, const SyncRecord& record) {
  if (record.type >= GPUPERF_SYNC_COUNT) return drops_.add(DropCause::kSessionBadIds);
  if (session.is_full) return drops_.add(DropCause::kSessionMemoryFull);
  add_duration(session.process.account,
               GpuProcesses::change(session.process).totals.syncs[record.type], record.duration_ns);
}

void GpuStatistics::apply(Session& session, const MemoryRecord& record) {
  const PlaceFacts* place = find_place(session, record.place_id);
  if (place == nullptr) return;
  GpuProcess& process = session.process;
  GpuProcessRow& row = GpuProcesses::change(process);
  if (!process.memory.apply(record, place->uuid, place->ordinal, row.memory)) {
    row.memory_complete = false;
  }
}

void GpuStatistics::apply(Session& session, const OverheadRecord& record) {
  if (record.type >= GPUPERF_OVERHEAD_COUNT) return drops_.add(DropCause::kSessionBadIds);
  OverheadTotals& totals = GpuProcesses::change(session.process).totals.overheads[record.type];
  ++totals.count;
  totals.total_ns += record.duration_ns;
}

void GpuStatistics::apply(Session& session, const SessionGap& gap) {
  GpuProcesses::change(session.process).memory_complete = false;
  // CUPTI was given up and taken up again: it counts its ids anew.
  const bool is_anew = gap.cause == GPUPERF_SESSION_CAUSE_OTHER_CLIENT ||
                       gap.cause == GPUPERF_SESSION_CAUSE_NSIGHT ||
                       gap.cause == GPUPERF_SESSION_CAUSE_CUPTI_ERROR;
  if (is_anew) session.join.forget_before(gap.start_mono_ns + gap.duration_ns);
}

// The shape that its row shows changes only with the shape: most kernels have one.
void GpuStatistics::show_launch(Session& session, uint32_t kernel, const KernelRecord& record,
                                const PlaceFacts& place) {
  if (record.shape_id >= session.shapes.size() || session.is_full) return;
  const LaunchShape& shape = session.shapes[record.shape_id];
  KernelRow& row = GpuProcesses::change_kernel_row(session.process, kernel);
  if (row.shape == shape) return;
  row.shape = shape;
  row.sm = place.sm;
}

void GpuStatistics::apply(Session& session, const StallRecord& record) {
  const uint32_t kernel =
      record.name_id < session.kernels.size() ? session.kernels[record.name_id] : kNone;
  if (kernel == kNone) return drops_.add(DropCause::kSessionBadIds);
  auto& instructions = session.process.kernels[kernel].instructions;
  if (instructions == nullptr) {
    instructions = std::make_unique<InstructionTable>(session.process.account);
  }
  instructions->add(record);
  session.sampled.insert(kernel);
}

// Comes after the samples of its time: rows show them.
void GpuStatistics::apply(Session& session, const SamplingRecord& record) {
  SamplingTotals totals = session.entry.row().sampling;
  totals.duration_ns += record.duration_ns;
  totals.samples += record.samples;
  totals.dropped_samples += record.dropped_samples;
  totals.other_samples += record.other_samples;
  totals.full_count += record.was_full ? 1 : 0;
  session.entry.change().sampling = totals;
  show_samples(session);
}

void GpuStatistics::show_samples(Session& session) {
  for (const uint32_t kernel : session.sampled) {
    const auto& slot = session.process.kernels[kernel];
    GpuProcesses::change_kernel_row(session.process, kernel).stalls =
        std::make_shared<const KernelStalls>(
            slot.instructions->summarise(slot.row->name->mangled, session.process.cubins));
  }
  session.sampled.clear();
}

// Comes after the samples, perhaps the last ones: rows show its lines at once.
void GpuStatistics::learn(Session& session, const CubinLines& cubin) {
  GpuProcess& process = session.process;
  const bool is_new = !process.cubins.contains(cubin.cubin_crc);
  const bool has_room = is_new && process.account.take(get_bytes(cubin));
  if (has_room) {
    process.cubins.emplace(cubin.cubin_crc, cubin);
  } else if (is_new && process.cubins.size() < kCubinsMax) {
    process.cubins.emplace(cubin.cubin_crc,
                           CubinLines{.cubin_crc = cubin.cubin_crc, .fate = LineFate::kNoRoom});
  }
  for (uint32_t i = 0; i < process.kernels.size(); ++i) {
    const auto& instructions = process.kernels[i].instructions;
    if (instructions != nullptr && instructions->has(cubin.cubin_crc)) session.sampled.insert(i);
  }
  show_samples(session);
}

void GpuStatistics::join(Session& session, const LaunchJoin::Match& match) {
  if (match.target == kNone) return;
  if (match.work_start_ns < match.api_start_ns) {
    ++session.join_totals.clock_violations;
    session.join_totals.clock_worst_ns =
        std::max(session.join_totals.clock_worst_ns, match.api_start_ns - match.work_start_ns);
    return;
  }
  ++session.join_totals.joined;
  const uint64_t latency_ns = match.work_start_ns - match.api_start_ns;
  SessionMemory::Account& account = session.process.account;
  if ((match.target & kGraphTarget) != 0) {
    GpuProcessRow& row = GpuProcesses::change(session.process);
    return add_duration(account, row.totals.graphs[match.target & ~kGraphTarget].launch_latency,
                        latency_ns);
  }
  KernelTotals& totals = GpuProcesses::change_kernel(session.process, match.target);
  add_duration(account, totals.launch_latency, latency_ns);
  add_duration(account, totals.queue_delay,
               match.work_start_ns - std::min(match.work_start_ns, match.api_end_ns));
}

void GpuStatistics::fill(GpuReport& report) const {
  processes_.fill(report);
  std::vector<uint32_t> numbers;
  report.activity = activities_.list(numbers);
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (const auto& [key, process] : processes_.processes()) {
      if (is_in_use(process, numbers[i])) report.activity[i].processes.push_back(key);
    }
  }
}

}  // namespace gpuperf
