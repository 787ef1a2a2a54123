#include "daemon/capture/capture_orders.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "daemon/base/clock_tick.h"
#include "daemon/base/log.h"
#include "daemon/base/proc_text.h"
#include "daemon/owner/container.h"
#include "daemon/store/unfinished_captures.h"

namespace gpuperf {
namespace {

constexpr uint64_t kExpirePeriodNs = 3'600'000'000'000;
// A session that is told to collect is awaited so long. Switching CUPTI on takes 10 to 22 ms (H200,
// decision 0012).
constexpr uint64_t kOpeningNs = 2'000'000'000;

Status check_owner(uint32_t pid, uint32_t uid) {
  struct stat facts {};
  if (stat(get_proc_path("/proc", pid, "").c_str(), &facts) != 0) {
    return absl::NotFoundError("pid " + std::to_string(pid) + " is not running");
  }
  if (facts.st_uid == uid) return absl::OkStatus();
  return absl::PermissionDeniedError("process " + std::to_string(pid) +
                                     " belongs to another user; root may capture it");
}

bool matches(const Owner& owner, const CaptureTarget& target) {
  return (target.container.empty() ||
          (!owner.container.empty() && (owner.container.starts_with(target.container) ||
                                        target.container.starts_with(owner.container)))) &&
         (target.pod.empty() || owner.pod == target.pod);
}

}  // namespace

CaptureOrders::CaptureOrders(const TraceSources& sources, Parts parts)
    : sources_(sources),
      parts_(std::move(parts)),
      store_(open_store()),
      captures_(make_captures()) {}

// Captures that the last daemon had not stored are there as failed, and their ids stay theirs.
Captures CaptureOrders::make_captures() {
  std::vector<CaptureRow> rows;
  uint64_t last_id = 0;
  if (store_ != nullptr) {
    rows = store_->list();
    last_id = store_->last_id();
    if (auto lost = read_unfinished_captures(get_unfinished_path()); lost.ok()) {
      std::erase_if(lost->captures, [&rows](const CaptureRow& row) {
        return std::ranges::find(rows, row.id, &CaptureRow::id) != rows.end();
      });
      for (const CaptureRow& row : lost->captures) last_id = std::max(last_id, row.id);
      last_id = std::max(last_id, lost->last_id);
      rows.insert(rows.end(), lost->captures.begin(), lost->captures.end());
      std::ranges::sort(rows, {}, &CaptureRow::id);
    } else if (!absl::IsNotFound(lost.status())) {
      log_warn("unfinished captures unknown", {{"error", std::string(lost.status().message())}});
    }
  }
  return Captures(make_capture_options(sources_.settings), sources_.recorder, std::move(rows),
                  last_id);
}

std::string CaptureOrders::get_unfinished_path() const {
  return sources_.settings.storage.path + "/captures/unfinished.json";
}

// Before a capture is acknowledged, and when one has ended.
void CaptureOrders::keep_unfinished() {
  std::vector<CaptureRow> unfinished = captures_.unfinished();
  std::vector<uint64_t> ids;
  for (const CaptureRow& row : unfinished) ids.push_back(row.id);
  if (ids == kept_unfinished_) return;
  kept_unfinished_ = std::move(ids);
  const Status written = write_unfinished_captures(
      get_unfinished_path(), {.last_id = captures_.last_id(), .captures = std::move(unfinished)});
  if (written.ok()) return;
  log_warn("unfinished captures not kept", {{"error", std::string(written.message())}});
}

std::unique_ptr<CaptureStore> CaptureOrders::open_store() {
  const Settings& settings = sources_.settings;
  if (settings.storage.path.empty()) return nullptr;
  auto store = CaptureStore::open({.folder = settings.storage.path + "/captures",
                                   .max_bytes = settings.trace.store_mib << 20,
                                   .retention = std::chrono::days(settings.trace.retention_days)},
                                  sources_.clock);
  if (store.ok()) return *std::move(store);
  problem_ = {"captures", std::string(store.status().message()),
              "captures cannot be stored until you fix this and restart gpuperfd"};
  return nullptr;
}

// What a new capture is of; without a place to keep it, none begins.
Result<std::vector<ProcessKey>> CaptureOrders::find_processes(const CaptureTarget& target,
                                                              uint32_t requester_uid) const {
  if (store_ == nullptr) {
    return absl::FailedPreconditionError(
        problem_
            ? "captures cannot be stored: " + problem_->message + "; fix it and restart gpuperfd"
            : "captures cannot be stored: storage.path is empty; set it to a folder and "
              "restart gpuperfd");
  }
  if (target.pid == 0 && requester_uid != 0) {
    return absl::PermissionDeniedError(
        "only root may capture other users' processes; give the pid of one of yours");
  }
  const bool names_owner = !target.container.empty() || !target.pod.empty();
  std::vector<ProcessKey> found;
  if (target.pid != 0) {
    if (requester_uid != 0) RETURN_IF_ERROR(check_owner(target.pid, requester_uid));
    const auto ticks = read_start_ticks("/proc", target.pid);
    if (!ticks.ok()) return found;
    const ProcessKey process{target.pid, *ticks * kTickNs};
    if (!names_owner || matches(read_owner(parts_.proc, process, nullptr), target))
      found.push_back(process);
    return found;
  }
  if (!names_owner) return found;
  const auto snapshot = parts_.board.get();
  for (const ProcessRow& row : snapshot->processes) {
    if (!row.exited && matches(row.owner, target)) found.push_back(row.process);
  }
  for (const auto& session : snapshot->gpu.sessions) {
    if (session->open && matches(session->facts.owner, target)) {
      found.push_back(session->facts.process);
    }
  }
  return found;
}

Result<CaptureRow> CaptureOrders::start(const CaptureOrder& order) {
  ASSIGN_OR_RETURN(auto processes, find_processes(order.target, order.requester_uid));
  // Sessions that rest between windows are opened, and awaited.
  const SessionWindows::Target sessions{.all_processes = !has_target(order.target),
                                        .processes = processes};
  const bool is_opening = order.gpu && parts_.windows != nullptr &&
                          parts_.windows->open(sessions, sources_.clock.mono_ns());
  auto row = captures_.start(order, std::move(processes), read_now(sources_.clock),
                             is_opening ? kOpeningNs : 0);
  if (is_opening && row.ok() && order.align_ms == 0) opening_.emplace_back(row->id, sessions);
  keep_unfinished();
  parts_.on_wanted();
  return row;
}

Result<CaptureRow> CaptureOrders::freeze(const FreezeOrder& order) {
  ASSIGN_OR_RETURN(auto processes, find_processes(order.target, order.requester_uid));
  auto row = captures_.freeze(order, std::move(processes), read_now(sources_.clock));
  keep_unfinished();
  return row;
}

Result<CaptureRow> CaptureOrders::stop(uint64_t id) {
  auto row = captures_.stop(id, read_now(sources_.clock));
  parts_.on_wanted();
  return row;
}

Result<CaptureRow> CaptureOrders::remove(uint64_t id) {
  const CaptureRow* row = captures_.find(id);
  const std::optional<CaptureRow> copy = row ? std::optional(*row) : std::nullopt;
  RETURN_IF_ERROR(captures_.remove(id));
  if (copy->state == CaptureState::kStored && store_) RETURN_IF_ERROR(store_->remove(id));
  return *copy;
}

// What is too old leaves.
void CaptureOrders::expire_stored() {
  const auto now_ns = static_cast<uint64_t>(sources_.clock.mono_ns());
  if (store_ == nullptr || now_ns < next_expire_mono_ns_) return;
  next_expire_mono_ns_ = now_ns + kExpirePeriodNs;
  const auto expire = [this] {
    store_->expire();
    sources_.loop.post([this] { captures_.keep_stored(store_->list()); });
  };
  (void)sources_.builds.post(expire);  // with too much to do, the next hour is early enough
}

void CaptureOrders::begin_opened() {
  std::erase_if(opening_, [this](const auto& opening) {
    const auto& [id, sessions] = opening;
    const CaptureRow* const row = captures_.find(id);
    if (row == nullptr || row->state != CaptureState::kScheduled) return true;
    if (parts_.windows->is_opening(sessions)) return false;
    captures_.begin_now(id, read_now(sources_.clock));
    return true;
  });
}

void CaptureOrders::advance() {
  expire_stored();
  begin_opened();
  const uint64_t lost_hits = sources_.drops.get(DropCause::kBpfTraceRingFull);
  for (FinishedCapture& finished : captures_.advance(read_now(sources_.clock), lost_hits)) {
    build(std::move(finished));
  }
  keep_unfinished();
  answer_awaited(false);
}

void CaptureOrders::await_begin(uint64_t id, OnBegun on_begun) {
  const CaptureRow* const row = captures_.find(id);
  if (row == nullptr || row->state == CaptureState::kScheduled) {
    awaited_.emplace_back(id, std::move(on_begun));
  } else {
    on_begun(*row);
  }
}

void CaptureOrders::answer_awaited(bool is_last_time) {
  std::erase_if(awaited_, [this, is_last_time](const auto& awaited) {
    const CaptureRow* const row = captures_.find(awaited.first);
    if (row == nullptr) return true;
    if (row->state == CaptureState::kScheduled && !is_last_time) return false;
    awaited.second(*row);
    return true;
  });
}

bool CaptureOrders::needs_every_probe() const {
  return std::ranges::any_of(wanted(), &Captures::Wanted::cpu);
}

void CaptureOrders::build(FinishedCapture finished) {
  const uint64_t id = finished.scope.id;
  CaptureRow known = *captures_.find(id);
  known.state = CaptureState::kStored;
  sources_.builds.post_build(
      {.scope = std::move(finished.scope),
       .window = std::move(finished.window),
       .on_built =
           [this, known](const BuildThread::Build&, const Capture& capture) {
             post_result(known.id, store_->write(capture, known));
           },
       .on_refused =
           [this, id] {
             post_result(id, absl::ResourceExhaustedError(
                                 "too many captures wait to be built; fewer at once can be"));
           }});
}

void CaptureOrders::post_result(uint64_t id, Result<CaptureRow> row) {
  sources_.loop.post([this, id, row = std::move(row)] {
    if (row.ok()) {
      captures_.set_stored(*row);
      captures_.keep_stored(store_->list());  // it made room by the oldest
      log_info("capture stored", {{"capture", std::to_string(id)},
                                  {"trigger", row->trigger},
                                  {"launches", std::to_string(row->launches)},
                                  {"work", std::to_string(row->work)},
                                  {"matched", std::to_string(row->work_matched)},
                                  {"bytes", std::to_string(row->stored_bytes)}});
    } else {
      captures_.set_failed(id, std::string(row.status().message()));
      log_warn("capture not stored",
               {{"capture", std::to_string(id)}, {"error", std::string(row.status().message())}});
    }
    parts_.on_change();
  });
}

}  // namespace gpuperf
