#include "daemon/capture/trace_recorder.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "injector/session_abi.h"

namespace gpuperf {
namespace {

constexpr uint64_t kChunkBytes = TraceRecorder::kChunkEvents * sizeof(TraceEvent);

// At least so many make up the span: the recorder holds a tenth more than it is to, at most. Fewer
// than fit into the smallest recorder, 1 MiB.
constexpr uint64_t kChunksOfSpan = 10;

uint64_t make_process_code(const ProcessKey& process) {
  return (process.start_boot_ns / kTickNs) << 22 ^ process.pid;
}

uint32_t find_index(const std::vector<uint32_t>& indices, uint32_t id) {
  return id < indices.size() ? indices[id] : kTraceNone;
}

void set_index(std::vector<uint32_t>& indices, uint32_t id, uint32_t index) {
  if (id >= indices.size()) indices.resize(id + size_t{1}, kTraceNone);
  indices[id] = index;
}

// What an entry of a table takes: itself, twice for a vector grows by doubling, and where it is
// found.
constexpr uint64_t kIndexBytes = 64;
template <typename Entry>
constexpr uint64_t kEntryBytes = 2 * sizeof(Entry) + kIndexBytes;
constexpr uint64_t kNameBytes = 64;  // the objects around its text

// `bytes`: what the entry has beside itself. Left out where the account has no room for it.
template <typename Entry>
void keep(SessionMemory::Account& account, std::vector<Entry>& entries, uint32_t id, size_t max,
          uint64_t bytes, const Entry& entry) {
  if (id > max) return;
  const size_t added = id < entries.size() ? 0 : id + size_t{1} - entries.size();
  if (!account.take(bytes + added * 2 * (sizeof(Entry) + sizeof(uint32_t)))) return;
  if (added > 0) entries.resize(id + size_t{1});
  entries[id] = entry;
}

}  // namespace

uint64_t TraceRecorder::Pin::count_events() const {
  uint64_t count = 0;
  for (const auto& chunk : chunks) count += chunk->events.size();
  return count;
}

TraceRecorder::TraceRecorder(Options options, DropCounters& drops)
    : options_(options), drops_(drops), graphs_(drops) {
  begin_epoch();
}

// What is in use of the old epoch lives on with its chunks.
void TraceRecorder::begin_epoch() {
  tables_ = std::make_shared<TraceTables>();
  ++epoch_;
  // Anew: one that is cleared keeps the size that it had.
  process_index_ = {};
  stack_index_ = {};
  captured_index_ = {};
  name_index_ = {};
  if (!chunks_.empty() && !chunks_.back()->events.empty()) begin_chunk();
  if (!chunks_.empty()) chunks_.back()->tables = tables_;
  while (chunks_.size() > 1 && count_table_bytes() > kMaxTableBytes) drop_oldest();
}

uint64_t TraceRecorder::count_table_bytes() const {
  uint64_t bytes = 0;
  const TraceTables* counted = nullptr;
  for (const auto& chunk : chunks_) {
    if (chunk->tables.get() == counted) continue;
    counted = chunk->tables.get();
    bytes += counted->bytes;
  }
  return bytes;
}

void TraceRecorder::begin_chunk() {
  std::erase_if(pins_, [](const std::weak_ptr<Pin>& pin) { return pin.expired(); });
  auto chunk = std::make_shared<Chunk>();
  chunk->tables = tables_;
  chunk->number = ++last_chunk_;
  chunk->events.reserve(kChunkEvents);
  chunks_.push_back(chunk);
  for (const std::weak_ptr<Pin>& weak : pins_) {
    const auto pin = weak.lock();
    if (pin == nullptr) continue;
    if ((pin->chunks.size() + 1) * kChunkBytes <= pin->max_bytes) {
      pin->chunks.push_back(chunk);
    } else {
      pin->lost_events += kChunkEvents;
      if (pin->is_for_capture) drops_.add(DropCause::kTraceCaptureFull, kChunkEvents);
    }
  }
  const uint64_t bound = std::max<uint64_t>(options_.max_bytes, kChunkBytes);
  while (chunks_.size() > 1 && chunks_.size() * kChunkBytes > bound) drop_oldest();
}

void TraceRecorder::drop_oldest() {
  forgotten_mono_ns_ = std::max(forgotten_mono_ns_, chunks_.front()->newest_mono_ns);
  chunks_.pop_front();
}

void TraceRecorder::add(const TraceEvent& event) {
  if (chunks_.empty() || is_full(chunks_.back()->events)) begin_chunk();
  Chunk& chunk = *chunks_.back();
  chunk.events.push_back(event);
  chunk.newest_mono_ns = std::max(chunk.newest_mono_ns, event.start_mono_ns + event.duration_ns);
  newest_mono_ns_ = std::max(newest_mono_ns_, chunk.newest_mono_ns);
}

uint32_t TraceRecorder::get_process(const ProcessKey& process) {
  const uint64_t code = make_process_code(process);
  if (const auto found = process_index_.find(code); found != process_index_.end()) {
    // The probes' word is the exact one, a session's is rounded down.
    uint64_t& start_ns = tables_->processes[found->second].process.start_boot_ns;
    start_ns = std::max(start_ns, process.start_boot_ns);
    return found->second;
  }
  if (tables_->processes.size() >= TraceTables::kMaxProcesses) begin_epoch();
  const auto index = static_cast<uint32_t>(tables_->processes.size());
  tables_->processes.push_back({.process = process});
  tables_->bytes += kEntryBytes<TraceProcess>;
  process_index_.emplace(code, index);
  return index;
}

uint32_t TraceRecorder::get_stack(uint64_t stack_id) {
  if (stack_id == 0) return kTraceNone;
  if (const auto found = stack_index_.find(stack_id); found != stack_index_.end()) {
    return found->second;
  }
  if (tables_->stacks.size() >= TraceTables::kMaxStacks) {
    drops_.add(DropCause::kTraceTablesFull);
    return kTraceNone;
  }
  const auto index = static_cast<uint32_t>(tables_->stacks.size());
  tables_->stacks.push_back(stack_id);
  tables_->bytes += kEntryBytes<uint64_t>;
  stack_index_.emplace(stack_id, index);
  return index;
}

// There is room for it: see apply.
uint32_t TraceRecorder::get_captured(const CapturedGraphPtr& graph) {
  const auto [known, is_new] =
      captured_index_.try_emplace(graph.get(), static_cast<uint32_t>(tables_->captured.size()));
  if (is_new) tables_->captured.push_back(graph);
  return known->second;
}

void TraceRecorder::keep_sites(const TraceBatch& batch) {
  for (const TraceSite& site : batch.sites) {
    if (sites_.size() >= kMaxSites && !sites_.contains(site.site_id)) {
      drops_.add(DropCause::kTraceTablesFull);
      continue;
    }
    sites_[site.site_id] = {.site = site, .told_mono_ns = batch.complete_mono_ns};
  }
}

void TraceRecorder::apply(const TraceBatch& batch) {
  loop_thread_.check();
  complete_mono_ns_ = std::max(complete_mono_ns_, batch.complete_mono_ns);
  keep_sites(batch);
  const auto find_site = [this](uint64_t id) -> const TraceSite* {
    const auto found = sites_.find(id);
    return found == sites_.end() ? nullptr : &found->second.site;
  };
  const std::vector<GraphSites::Replay> replays = graphs_.apply(batch, find_site);
  if (!is_wanted()) return;
  auto replay = replays.begin();
  for (size_t i = 0; i < batch.launches.size(); ++i) {
    const TraceLaunch& launch = batch.launches[i];
    if (tables_->captured.size() >= TraceTables::kMaxCaptured) begin_epoch();
    const uint32_t process = get_process(launch.process);  // may begin one, too
    const bool is_replay = replay != replays.end() && replay->first == i;
    TraceEvent event{.start_mono_ns = launch.mono_ns,
                     .process = process,
                     .kind = static_cast<uint64_t>(TraceKind::kLaunch),
                     .tag = is_replay ? get_captured((replay++)->second) : 0,
                     .first = launch.tid,
                     .second = launch.function_id,
                     .third = static_cast<uint32_t>(launch.site_id),
                     .fourth = static_cast<uint32_t>(launch.site_id >> 32)};
    add(event);
  }
  for (const TraceCall& call : batch.calls) {
    const uint64_t duration_ns = std::min(call.duration_ns, kTraceMaxDurationNs);
    const double off_cpu = duration_ns == 0 ? 0
                                            : static_cast<double>(call.off_cpu_ns) /
                                                  static_cast<double>(call.duration_ns);
    TraceEvent event{.start_mono_ns = call.start_mono_ns,
                     .duration_ns = duration_ns,
                     .process = get_process(call.process),
                     .kind = static_cast<uint64_t>(TraceKind::kCall),
                     .tag = std::min<uint64_t>(call.depth, kTraceMaxDepth),
                     .first = call.tid,
                     .second = call.function_id,
                     .third = static_cast<uint32_t>(std::min(off_cpu, 1.0) * UINT32_MAX),
                     .fourth = get_stack(call.stack_id)};
    add(event);
  }
  for (const TraceThreadTime& time : batch.thread_times) add(time);
}

void TraceRecorder::apply(const Step& step) {
  loop_thread_.check();
  if (!is_wanted()) return;
  const auto to_word = [](uint64_t value) {
    return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
  };
  const TraceStepFacts facts{.phase = step.phase,
                             .phase_quality = step.phase_quality,
                             .duration_quality = step.completed_quality,
                             .tokens_quality = step.tokens.quality,
                             .sequences_quality = step.sequences.quality};
  add({.start_mono_ns = step.start_mono_ns,
       .duration_ns = std::min(get_duration_ns(step), kTraceMaxDurationNs),
       .process = get_process(step.process),
       .kind = static_cast<uint64_t>(TraceKind::kStep),
       .tag = pack_step_facts(facts),
       .first = step.tid,
       .second = step.function_id,
       .third = to_word(step.tokens.value),
       .fourth = to_word(step.sequences.value)});
}

// First blocked, then runnable: each part is an event of its own.
void TraceRecorder::add(const TraceThreadTime& time) {
  const WaitKind wait = time.is_tick ? WaitKind::kOther : static_cast<WaitKind>(time.kind);
  uint64_t start_ns = time.start_mono_ns;
  const auto add_part = [&](HostState state, uint64_t duration_ns) {
    const bool has_stack = time.is_tick || is_blocked(state);
    add({.start_mono_ns = start_ns,
         .duration_ns = std::min(duration_ns, kTraceMaxDurationNs),
         .process = get_process(time.process),
         .kind = static_cast<uint64_t>(TraceKind::kThread),
         .tag = static_cast<uint64_t>(state),
         .first = time.tid,
         .second = is_blocked(state) ? time.waker_tid : 0,
         .third = is_blocked(state) ? time.waker_pid : 0,
         .fourth = has_stack ? get_stack(time.stack_id) : kTraceNone});
    start_ns += duration_ns;
  };
  if (time.is_tick) return add_part(static_cast<HostState>(time.kind), 0);
  if (time.blocked_ns > 0) add_part(make_blocked_state(wait), time.blocked_ns);
  if (time.throttled_ns > 0) add_part(HostState::kThrottled, time.throttled_ns);
  if (time.runnable_ns > 0) add_part(HostState::kRunnable, time.runnable_ns);
}

// Kept for the recorder's span, and as long as a capture needs.
void TraceRecorder::apply(const GpuHealthReport& report) {
  loop_thread_.check();
  const auto now = static_cast<uint64_t>(report.read_mono_ns);
  uint64_t wanted_from_ns = now > options_.span_ns ? now - options_.span_ns : 0;
  for (const std::weak_ptr<Pin>& weak : pins_) {
    if (const auto pin = weak.lock()) wanted_from_ns = std::min(wanted_from_ns, pin->from_mono_ns);
  }
  gpu_counters_.expire(wanted_from_ns);
  gpu_counters_.add(report, drops_);
}

void TraceRecorder::follow(SessionRegistry& sessions) {
  sessions.add(
      [this](const SessionEntry& entry) { return std::make_unique<Session>(*this, entry); });
}

void TraceRecorder::apply(Session& session, const SessionStatus& status) {
  session.clock_error_ns = status.clock_error_ns;
  for (size_t i = 0; i < status.losses.size(); ++i) {
    const uint64_t before = std::exchange(session.losses[i], status.losses[i]);
    if (status.losses[i] <= before || i == GPUPERF_SESSION_LOSS_SAMPLED || !is_wanted()) continue;
    TraceEvent event = make(session, TraceKind::kLost, newest_mono_ns_, 0);
    event.first = static_cast<uint32_t>(i);
    event.second = static_cast<uint32_t>(std::min<uint64_t>(status.losses[i] - before, UINT32_MAX));
    add(event);
  }
}

// Before any of the batch's events: none of them may begin an epoch in the middle.
void TraceRecorder::make_room(Session& session, const SessionBatch& batch) {
  const size_t new_places = batch.places.size() + session.places.size();
  const size_t new_shapes = batch.shapes.size() + session.shapes.size();
  const size_t new_names = batch.names.size() + session.names.size();
  const bool is_known = session.epoch == epoch_;
  const auto fits = [is_known](size_t used, size_t all, size_t added, size_t max) {
    return used + (is_known ? added : all) < max;
  };
  // One session alone may fill them: then its rest goes without, and no epoch follows the other.
  const bool is_used = tables_->places.size() > TraceTables::kMaxPlaces / 2 ||
                       tables_->shapes.size() > TraceTables::kMaxShapes / 2 ||
                       tables_->names.size() > TraceTables::kMaxNames / 2 ||
                       tables_->graphs.size() > TraceTables::kMaxGraphs / 2;
  if (tables_->bytes > kMaxTableBytes / 2 && session.epoch != epoch_) begin_epoch();
  if (is_used &&
      (!fits(tables_->places.size(), new_places, batch.places.size(), TraceTables::kMaxPlaces) ||
       !fits(tables_->shapes.size(), new_shapes, batch.shapes.size(), TraceTables::kMaxShapes) ||
       !fits(tables_->names.size(), new_names, batch.names.size(), TraceTables::kMaxNames) ||
       tables_->graphs.size() + 1 >= TraceTables::kMaxGraphs)) {
    begin_epoch();
  }
  const uint32_t process = get_process(session.process);  // may begin one, too
  if (session.epoch != epoch_) {
    session.epoch = epoch_;
    session.name_index.clear();
    session.shape_index.clear();
    session.place_index.clear();
    session.graph_index.clear();
  }
  session.process_index = process;
  TraceProcess& row = tables_->processes[process];
  row.is_injected = true;
  row.clock_error_ns = std::max(row.clock_error_ns, session.clock_error_ns);
}

uint32_t TraceRecorder::get_name(Session& session, uint32_t id) {
  const uint32_t known = find_index(session.name_index, id);
  if (known != kTraceNone) return known;
  if (id >= session.names.size() || session.names[id] == nullptr) return kTraceNone;
  const auto found = name_index_.find(*session.names[id]);
  uint32_t index = found == name_index_.end() ? kTraceNone : found->second;
  if (index == kTraceNone) {
    index = static_cast<uint32_t>(tables_->names.size());
    if (index >= TraceTables::kMaxNames) return kTraceNone;
    tables_->names.push_back(session.names[id]);
    tables_->bytes +=
        kEntryBytes<std::shared_ptr<const std::string>> + kNameBytes + session.names[id]->size();
    name_index_.emplace(*session.names[id], index);
  }
  set_index(session.name_index, id, index);
  return index;
}

uint32_t TraceRecorder::get_shape(Session& session, uint32_t id) {
  const uint32_t known = find_index(session.shape_index, id);
  if (known != kTraceNone) return known;
  if (id >= session.shapes.size() || tables_->shapes.size() >= TraceTables::kMaxShapes) {
    return kTraceNoShape;
  }
  const auto index = static_cast<uint32_t>(tables_->shapes.size());
  tables_->shapes.push_back(session.shapes[id]);
  tables_->bytes += kEntryBytes<LaunchShape>;
  set_index(session.shape_index, id, index);
  return index;
}

uint32_t TraceRecorder::get_place(Session& session, uint32_t id) {
  const uint32_t known = find_index(session.place_index, id);
  if (known != kTraceNone) return known;
  if (tables_->places.size() >= TraceTables::kMaxPlaces) return 0;
  const Place place = id < session.places.size() ? session.places[id] : Place{.stream = UINT32_MAX};
  const auto index = static_cast<uint32_t>(tables_->places.size());
  tables_->places.push_back({.device_uuid = place.device_uuid,
                             .device = place.device,
                             .context = place.context,
                             .stream = place.stream});
  tables_->bytes += kEntryBytes<TracePlace>;
  set_index(session.place_index, id, index);
  return index;
}

uint32_t TraceRecorder::get_graph(Session& session, uint32_t id) {
  if (id == 0) return 0;
  if (const auto known = session.graph_index.find(id); known != session.graph_index.end()) {
    return known->second;
  }
  if (tables_->graphs.size() >= TraceTables::kMaxGraphs) {
    drops_.add(DropCause::kTraceTablesFull);
    return 0;
  }
  const auto index = static_cast<uint32_t>(tables_->graphs.size());
  tables_->graphs.push_back(id);
  tables_->bytes += kEntryBytes<uint32_t>;
  session.graph_index.emplace(id, index);
  return index;
}

TraceEvent TraceRecorder::make(const Session& session, TraceKind kind, uint64_t start_ns,
                               uint64_t duration_ns) {
  const bool is_known = session.epoch == epoch_ && session.process_index != kTraceNone;
  const uint32_t process = is_known ? session.process_index : get_process(session.process);
  return {.start_mono_ns = start_ns,
          .duration_ns = std::min(duration_ns, kTraceMaxDurationNs),
          .process = process,
          .kind = static_cast<uint64_t>(kind)};
}

void TraceRecorder::apply(Session& session, const SessionBatch& batch) {
  for (const KernelName& name : batch.names) {
    keep(session.account, session.names, name.id, GPUPERF_NAMES_MAX, kNameBytes + name.text.size(),
         std::make_shared<const std::string>(name.text));
  }
  for (const LaunchShape& shape : batch.shapes) {
    keep(session.account, session.shapes, shape.id, GPUPERF_SHAPES_MAX, 0, shape);
  }
  for (const Place& place : batch.places) {
    keep(session.account, session.places, place.id, GPUPERF_PLACES_MAX, 0, place);
  }
  if (!is_wanted()) return;
  make_room(session, batch);
  for (const ApiRecord& record : batch.apis) {
    TraceEvent event = make(session, TraceKind::kApi, record.start_mono_ns, record.duration_ns);
    event.tag = (record.is_driver ? kTraceDriverCall : 0) | (record.is_hooked ? kTraceHooked : 0);
    event.first = record.correlation_id;
    event.second = record.tid;
    event.third = record.callback_id;
    event.fourth = record.return_value;
    add(event);
  }
  for (const KernelRecord& record : batch.kernels) {
    TraceEvent event = make(session, TraceKind::kKernel, record.start_mono_ns, record.duration_ns);
    event.tag = get_graph(session, record.graph_id);
    event.first = record.correlation_id;
    event.second = get_name(session, record.name_id);
    event.third = get_place(session, record.place_id) | get_shape(session, record.shape_id) << 16;
    event.fourth = record.node_id;
    add(event);
  }
  for (const CopyRecord& record : batch.copies) {
    TraceEvent event = make(session, record.is_set ? TraceKind::kSet : TraceKind::kCopy,
                            record.start_mono_ns, record.duration_ns);
    const uint64_t node = record.node_id <= kTraceMaxCopyNode ? record.node_id : kTraceNoCopyNode;
    const uint64_t packed = std::min(record.bytes, kTraceMaxBytes) |
                            static_cast<uint64_t>(record.direction) << 40 | node << 48;
    event.tag = get_graph(session, record.graph_id);
    event.first = record.correlation_id;
    event.second = get_place(session, record.place_id);
    event.third = static_cast<uint32_t>(packed);
    event.fourth = static_cast<uint32_t>(packed >> 32);
    add(event);
  }
  for (const GraphRecord& record : batch.graphs) {
    TraceEvent event = make(session, TraceKind::kGraph, record.start_mono_ns, record.duration_ns);
    event.first = record.correlation_id;
    event.second = get_place(session, record.place_id);
    event.third = record.graph_id;
    add(event);
  }
  for (const SyncRecord& record : batch.syncs) {
    TraceEvent event = make(session, TraceKind::kWait, record.start_mono_ns, record.duration_ns);
    event.first = record.correlation_id;
    event.second = record.type;
    add(event);
  }
  for (const SessionGap& gap : batch.gaps) {
    TraceEvent event = make(session, TraceKind::kGap, gap.start_mono_ns, gap.duration_ns);
    event.first = gap.cause;
    add(event);
  }
  add_samples(session, batch.stalls);
}

// By kernel and state: captures do not tell instructions apart.
void TraceRecorder::add_samples(Session& session, const std::vector<StallRecord>& records) {
  std::map<std::pair<uint32_t, uint32_t>, StallRecord::Count> sums;
  for (const StallRecord& record : records) {
    for (const StallRecord::Count& count : record.counts) {
      StallRecord::Count& sum = sums[{record.name_id, count.stall}];
      sum.samples += std::min(count.samples, UINT32_MAX - sum.samples);
      sum.idle_samples += std::min(count.idle_samples, UINT32_MAX - sum.idle_samples);
    }
  }
  for (const auto& [key, sum] : sums) {
    // They do not say of when they are; they come within 0.3 s.
    TraceEvent event = make(session, TraceKind::kStall, newest_mono_ns_, 0);
    event.first = get_name(session, key.first);
    event.second = sum.samples;
    event.third = sum.idle_samples;
    event.tag = key.second;
    add(event);
  }
}

void TraceRecorder::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  const auto now = static_cast<uint64_t>(now_mono_ns);
  const uint64_t oldest = now > options_.span_ns ? now - options_.span_ns : 0;
  for (auto chunk = chunks_.rbegin(); chunk != chunks_.rend(); ++chunk) {
    if (chunk != chunks_.rbegin() && (*chunk)->filled_mono_ns != 0) break;
    (*chunk)->filled_mono_ns = now;
  }
  // The next chunk's first event came after all of this one's. What came so long ago is old,
  // whatever its sender said of its time.
  const auto is_old_chunk = [&](const Chunk& chunk, const Chunk& next) {
    return chunk.filled_mono_ns < oldest ||
           (!next.events.empty() && next.events.front().start_mono_ns < oldest);
  };
  while (chunks_.size() > 1 && is_old_chunk(*chunks_[0], *chunks_[1])) drop_oldest();
  // Chunks leave whole, so none may span much. A capture, which has room for so many of them, fills
  // them all.
  std::erase_if(pins_, [](const std::weak_ptr<Pin>& pin) { return pin.expired(); });
  const bool is_long =
      !chunks_.empty() && !chunks_.back()->events.empty() &&
      chunks_.back()->events.front().start_mono_ns + options_.span_ns / kChunksOfSpan < now;
  if (is_long && pins_.empty()) begin_chunk();
  // Of processes that may have gone; those that have not say again what is in it.
  const bool is_old_epoch = epoch_mono_ns_ + options_.span_ns / 2 < now;
  if (is_old_epoch && tables_->bytes > kSmallTableBytes) begin_epoch();
  if (is_old_epoch) epoch_mono_ns_ = now;
  if (!pins_.empty()) return;
  const uint64_t keep_ns = options_.span_ns + kKeepSitesNs;
  std::erase_if(sites_,
                [&](const auto& entry) { return entry.second.told_mono_ns + keep_ns < now; });
}

std::shared_ptr<TraceRecorder::Pin> TraceRecorder::pin(uint64_t from_mono_ns, uint64_t max_bytes,
                                                       uint64_t before_bytes) {
  loop_thread_.check();
  auto pin = std::make_shared<Pin>();
  pin->max_bytes = max_bytes;
  pin->from_mono_ns = from_mono_ns;
  const auto is_older = [&](const std::shared_ptr<Chunk>& chunk) {
    return is_full(chunk->events) && chunk->newest_mono_ns < from_mono_ns;
  };
  const size_t older = std::ranges::count_if(chunks_, is_older);
  size_t left_out = older - std::min<size_t>(older, before_bytes / kChunkBytes);
  for (const auto& chunk : chunks_) {
    if (left_out > 0 && is_older(chunk)) {
      --left_out;
    } else {
      pin->chunks.push_back(chunk);
    }
  }
  pins_.push_back(pin);
  if (chunks_.empty()) begin_chunk();
  return pin;
}

TraceWindow TraceRecorder::take(std::span<const std::shared_ptr<Pin>> pins) {
  loop_thread_.check();
  std::map<uint64_t, std::shared_ptr<Chunk>> chunks;
  uint64_t from_mono_ns = UINT64_MAX;
  for (const std::shared_ptr<Pin>& pin : pins) {
    from_mono_ns = std::min(from_mono_ns, pin->from_mono_ns);
    for (const auto& chunk : pin->chunks) chunks.emplace(chunk->number, chunk);
    pin->chunks.clear();
    std::erase_if(pins_, [&pin](const std::weak_ptr<Pin>& other) { return other.lock() == pin; });
  }
  TraceWindow window;
  // What is being filled, and the tables that grow, are copied: the rest does not change any more.
  std::shared_ptr<const TraceTables> tables;
  for (const auto& [number, chunk] : chunks) {
    const bool is_current = chunk->tables == tables_;
    if (is_current && tables == nullptr) tables = std::make_shared<const TraceTables>(*tables_);
    const bool is_filled = chunk != chunks_.back();
    window.parts.push_back(
        {.tables = is_current ? tables : chunk->tables,
         .events = is_filled ? std::shared_ptr<const TraceEvents>(chunk, &chunk->events)
                             : std::make_shared<const TraceEvents>(chunk->events)});
  }
  for (const auto& [id, site] : sites_) window.sites.push_back(site.site);
  std::ranges::sort(window.sites, {}, &TraceSite::site_id);
  window.gpu_counters = gpu_counters_.list(from_mono_ns);
  return window;
}

void TraceRecorder::fill(SelfReport& report) const {
  const uint64_t table_bytes = count_table_bytes();
  report.add(Bound::kTraceTables, table_bytes, kMaxTableBytes);
  report.add(Bound::kTraceSites, sites_.size(), kMaxSites);
  report.add(Bound::kGpuCounterHistory, gpu_counters_.size(), GpuCounterHistory::kMaxRecords);
  report.add(MemoryPart::kTraceTables, table_bytes);
  report.add(MemoryPart::kRecorder, chunks_.size() * kChunkEvents * sizeof(TraceEvent));
}

RecorderRow TraceRecorder::row(int64_t now_mono_ns) const {
  RecorderRow row{.enabled = options_.max_bytes > 0, .max_bytes = options_.max_bytes};
  for (const auto& chunk : chunks_) row.events += chunk->events.size();
  row.bytes = chunks_.size() * kChunkEvents * sizeof(TraceEvent);
  if (!chunks_.empty() && !chunks_.front()->events.empty()) {
    // Events come some milliseconds out of order.
    const uint64_t oldest =
        std::ranges::min(chunks_.front()->events, {}, &TraceEvent::start_mono_ns).start_mono_ns;
    row.span_ns = static_cast<uint64_t>(now_mono_ns) - std::min<uint64_t>(oldest, now_mono_ns);
  }
  return row;
}

}  // namespace gpuperf
