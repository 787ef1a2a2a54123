#include "daemon/capture/captures.h"

#include <algorithm>
#include <utility>

namespace gpuperf {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr size_t kMaxNameBytes = 128;

Status check_order(const std::string& name, const CaptureTarget& target,
                   const std::vector<ProcessKey>& processes) {
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("name: longer than 128 bytes");
  }
  if (target.with_children && target.pid == 0) {
    return absl::InvalidArgumentError("with_children: needs a pid");
  }
  if (has_target(target) && processes.empty()) {
    const bool only_pid = target.pid != 0 && target.container.empty() && target.pod.empty();
    return absl::NotFoundError((only_pid ? "pid " + std::to_string(target.pid) + " is not running"
                                         : "no running process matches") +
                               "; list processes: gpuperfctl processes");
  }
  return absl::OkStatus();
}

Status make_unknown_error(uint64_t id) {
  return absl::NotFoundError("there is no capture " + std::to_string(id) +
                             "; list captures: gpuperfctl trace list");
}

CaptureScope make_scope(uint64_t id, const std::string& name, const std::string& trigger,
                        const CaptureTarget& target, std::vector<ProcessKey> processes) {
  return {.id = id,
          .name = name,
          .trigger = trigger,
          .all_processes = !has_target(target),
          .processes = std::move(processes)};
}

}  // namespace

Captures::Captures(Options options, TraceRecorder& recorder, std::vector<CaptureRow> stored,
                   uint64_t last_id)
    : options_(options), recorder_(recorder), last_id_(last_id), rows_(std::move(stored)) {}

const CaptureRow* Captures::find(uint64_t id) const {
  const auto found = std::ranges::find(rows_, id, &CaptureRow::id);
  return found == rows_.end() ? nullptr : &*found;
}

CaptureRow* Captures::find_row(uint64_t id) { return const_cast<CaptureRow*>(find(id)); }

CaptureRow& Captures::add_row(const std::string& name, const std::string& trigger,
                              const CaptureTarget& target) {
  const auto failed = [](const CaptureRow& row) { return row.state == CaptureState::kFailed; };
  if (static_cast<size_t>(std::ranges::count_if(rows_, failed)) >= kMaxFailedRows) {
    rows_.erase(std::ranges::find_if(rows_, failed));
  }
  rows_.push_back({.id = ++last_id_, .name = name, .trigger = trigger, .target = target});
  return rows_.back();
}

// A capture has it until end().
Status Captures::take_place(uint32_t requester_uid) {
  switch (places_.take({.uid = requester_uid})) {
    case Shares::Verdict::kTaken:
      return absl::OkStatus();
    case Shares::Verdict::kUserFull:
      return absl::ResourceExhaustedError(
          "this user already has 3 running captures, the maximum; stop one: "
          "gpuperfctl trace stop ID");
    case Shares::Verdict::kFull:
    case Shares::Verdict::kProcessFull:
      break;
  }
  return absl::ResourceExhaustedError(
      "the maximum number of captures is running (8, 2 of them reserved for root); stop one: "
      "gpuperfctl trace stop ID");
}

void Captures::end(const Running& running) { places_.give_back({.uid = running.requester_uid}); }

Result<CaptureRow> Captures::start(const CaptureOrder& order, std::vector<ProcessKey> processes,
                                   const Now& now, uint64_t delay_ns) {
  loop_thread_.check();
  RETURN_IF_ERROR(check_order(order.name, order.target, processes));
  if (!order.cpu && !order.gpu) {
    return absl::InvalidArgumentError("nothing to capture: neither CPU nor GPU is selected");
  }
  if (order.duration_ms > options_.max_duration_ns / kNsPerMs) {
    return absl::InvalidArgumentError("duration_ms: longer than trace.max_capture_seconds");
  }
  RETURN_IF_ERROR(take_place(order.requester_uid));
  CaptureRow& row = add_row(order.name, "request", order.target);
  Running running{
      .id = row.id,
      .requester_uid = order.requester_uid,
      .order = order,
      .scope = make_scope(row.id, order.name, row.trigger, order.target, std::move(processes)),
      .begin_unix_ns = now.unix_ns + delay_ns};
  running.scope.cpu = order.cpu;
  running.scope.gpu = order.gpu;
  if (order.align_ms != 0) {
    const uint64_t step_ns = order.align_ms * kNsPerMs;
    running.begin_unix_ns = (running.begin_unix_ns + step_ns - 1) / step_ns * step_ns;
  }
  row.requester_uid = order.requester_uid;
  row.start_unix_ns = running.begin_unix_ns;
  row.duration_ns = order.duration_ms * kNsPerMs;
  if (running.begin_unix_ns <= now.unix_ns) begin(running, now, 0);
  running_.push_back(std::move(running));
  return *find(last_id_);
}

void Captures::begin(Running& running, const Now& now, uint64_t lost_hits) {
  running.pin = recorder_.pin(now.mono_ns, options_.max_bytes / kMaxRunning * 4);
  running.events_before = running.pin->count_events();
  running.scope.start_mono_ns = now.mono_ns;
  running.scope.start_unix_ns = now.unix_ns;
  const uint64_t duration_ns = running.order.duration_ms * kNsPerMs;
  running.is_traced = true;
  running.end_mono_ns = now.mono_ns + (duration_ns == 0 ? options_.max_duration_ns : duration_ns);
  running.lost_hits_before = lost_hits;
  CaptureRow& row = *find_row(running.id);
  row.state = CaptureState::kRunning;
  row.start_unix_ns = now.unix_ns;
}

Result<CaptureRow> Captures::freeze(const FreezeOrder& order, std::vector<ProcessKey> processes,
                                    const Now& now) {
  loop_thread_.check();
  RETURN_IF_ERROR(check_order(order.name, order.target, processes));
  const RecorderRow recorder = recorder_.row(static_cast<int64_t>(now.mono_ns));
  if (!recorder.enabled) {
    return absl::FailedPreconditionError(
        "the flight recorder is off; set trace.recorder = true and restart gpuperfd, or start a "
        "capture: gpuperfctl trace start");
  }
  RETURN_IF_ERROR(take_place(order.requester_uid));
  uint64_t span_ns = recorder.span_ns;
  if (order.last_ms != 0) span_ns = std::min(span_ns, order.last_ms * kNsPerMs);
  CaptureRow& row = add_row(order.name, order.trigger, order.target);
  row.state = CaptureState::kSettling;
  row.requester_uid = order.requester_uid;
  row.start_unix_ns = now.unix_ns - span_ns;
  row.duration_ns = span_ns;
  Running running{
      .id = row.id,
      .requester_uid = order.requester_uid,
      .scope = make_scope(row.id, order.name, order.trigger, order.target, std::move(processes)),
      .begin_unix_ns = row.start_unix_ns,
      .end_mono_ns = now.mono_ns,
      // The recorder's own bound holds for what is there; some more comes while it settles.
      .pin = recorder_.pin(now.mono_ns - span_ns, 2 * recorder.max_bytes + options_.max_bytes)};
  running.scope.start_mono_ns = now.mono_ns - span_ns;
  running.scope.start_unix_ns = row.start_unix_ns;
  running_.push_back(std::move(running));
  return *find(last_id_);
}

Result<CaptureRow> Captures::stop(uint64_t id, const Now& now) {
  loop_thread_.check();
  CaptureRow* row = find_row(id);
  if (row == nullptr) return make_unknown_error(id);
  const auto running = std::ranges::find(running_, id, &Running::id);
  const bool runs = running != running_.end() && row->state != CaptureState::kSettling;
  if (!runs) {
    return absl::FailedPreconditionError("capture " + std::to_string(id) + " has ended already");
  }
  if (running->pin == nullptr) {
    end(*running);
    running_.erase(running);
    row->state = CaptureState::kFailed;
    row->problem = "stopped before it began";
    return *row;
  }
  running->end_mono_ns = std::min(running->end_mono_ns, now.mono_ns);
  row->state = CaptureState::kSettling;
  return *row;
}

void Captures::begin_now(uint64_t id, const Now& now) {
  loop_thread_.check();
  const auto running = std::ranges::find(running_, id, &Running::id);
  if (running == running_.end() || running->pin != nullptr) return;
  running->begin_unix_ns = std::min(running->begin_unix_ns, now.unix_ns);
}

void Captures::add_child(const ProcessKey& parent, const ProcessKey& child) {
  loop_thread_.check();
  for (Running& running : running_) {
    if (!running.order.target.with_children) continue;
    const auto is = [&parent](const ProcessKey& key) { return is_same_process(key, parent); };
    if (std::ranges::any_of(running.scope.processes, is)) {
      running.scope.processes.push_back(child);
    }
  }
}

std::vector<FinishedCapture> Captures::advance(const Now& now, uint64_t lost_hits) {
  loop_thread_.check();
  std::vector<FinishedCapture> finished;
  for (Running& running : running_) {
    if (running.pin == nullptr) {
      if (running.begin_unix_ns <= now.unix_ns) begin(running, now, lost_hits);
      continue;
    }
    CaptureRow& row = *find_row(running.id);
    if (now.mono_ns < running.end_mono_ns) continue;
    if (row.state == CaptureState::kRunning) row.state = CaptureState::kSettling;
    if (now.mono_ns < running.end_mono_ns + options_.settle_ns) continue;
    row.state = CaptureState::kBuilding;
    row.duration_ns = running.end_mono_ns - running.scope.start_mono_ns;
    running.scope.end_mono_ns = running.end_mono_ns;
    running.scope.lost_events = running.pin->lost_events;
    running.scope.lost_hits = lost_hits - running.lost_hits_before;
    finished.push_back({.scope = std::move(running.scope), .window = recorder_.take(running.pin)});
    end(running);
    running.pin = nullptr;
    running.id = 0;
  }
  std::erase_if(running_, [](const Running& running) { return running.id == 0; });
  update_rows(now);
  return finished;
}

void Captures::update_rows(const Now& now) {
  for (const Running& running : running_) {
    if (running.pin == nullptr) continue;
    CaptureRow& row = *find_row(running.id);
    row.events = running.pin->count_events() - running.events_before;
    row.lost_events = running.pin->lost_events;
    row.duration_ns = std::min(now.mono_ns, running.end_mono_ns) - running.scope.start_mono_ns;
  }
}

void Captures::set_stored(const CaptureRow& stored) {
  loop_thread_.check();
  CaptureRow* row = find_row(stored.id);
  if (row == nullptr) return;
  const CaptureRow before = *row;
  *row = stored;
  row->lost_events = before.lost_events;
  row->requester_uid = before.requester_uid;
}

void Captures::set_failed(uint64_t id, const std::string& problem) {
  loop_thread_.check();
  CaptureRow* row = find_row(id);
  if (row == nullptr) return;
  row->state = CaptureState::kFailed;
  row->problem = problem;
}

void Captures::keep_stored(const std::vector<CaptureRow>& stored) {
  loop_thread_.check();
  std::erase_if(rows_, [&stored](const CaptureRow& row) {
    const bool is_there = std::ranges::find(stored, row.id, &CaptureRow::id) != stored.end();
    return row.state == CaptureState::kStored && !is_there;
  });
}

Status Captures::remove(uint64_t id) {
  loop_thread_.check();
  const CaptureRow* row = find(id);
  if (row == nullptr) return make_unknown_error(id);
  if (row->state != CaptureState::kStored && row->state != CaptureState::kFailed) {
    return absl::FailedPreconditionError("capture " + std::to_string(id) +
                                         " has not ended; gpuperfctl trace stop ends it");
  }
  std::erase_if(rows_, [id](const CaptureRow& other) { return other.id == id; });
  return absl::OkStatus();
}

std::vector<Captures::Wanted> Captures::wanted(uint64_t now_mono_ns) const {
  std::vector<Wanted> wanted;
  for (const Running& running : running_) {
    if (!running.is_traced || now_mono_ns >= running.end_mono_ns + kKeptLaunchesNs) continue;
    wanted.push_back({.all_processes = running.scope.all_processes,
                      .processes = running.scope.processes,
                      .with_children = running.order.target.with_children,
                      .cpu = running.order.cpu,
                      .gpu = running.order.gpu,
                      .nodes = running.order.nodes});
  }
  return wanted;
}

std::vector<CaptureRow> Captures::rows() const { return rows_; }

std::vector<CaptureRow> Captures::unfinished() const {
  std::vector<CaptureRow> unfinished;
  for (const CaptureRow& row : rows_) {
    const bool has_ended = row.state == CaptureState::kStored || row.state == CaptureState::kFailed;
    if (!has_ended) unfinished.push_back(row);
  }
  return unfinished;
}

Captures::Now read_now(const Clock& clock) {
  return {.mono_ns = static_cast<uint64_t>(clock.mono_ns()),
          .unix_ns = static_cast<uint64_t>(clock.unix_ns())};
}

Captures::Options make_capture_options(const Settings& settings) {
  // Records wait in their process for the flush interval, and for the buffer they are in.
  const uint64_t flush_ns = settings.ingest.flush_interval_ms * kNsPerMs;
  return {.max_bytes = settings.trace.max_capture_mib << 20,
          .max_duration_ns = settings.trace.max_capture_seconds * 1'000 * kNsPerMs,
          .settle_ns = 1'000 * kNsPerMs + 4 * flush_ns};
}

}  // namespace gpuperf
