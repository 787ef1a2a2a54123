#include "daemon/app/sessions_part.h"

#include <numeric>
#include <string>
#include <utility>

#include "daemon/app/session_intake.h"
#include "daemon/owner/cri.h"

namespace gpuperf {
namespace {

// Of one turn: then whatever else waits for the loop comes first. 1 MiB, some 5 ms.
constexpr int kBatchesPerTurn = 2;

constexpr uint64_t kMemoryShare = 4;  // of the daemon's memory, one of so many is for sessions

}  // namespace

SessionsPart::SessionsPart(Core& core)
    : Part(core),
      memory_(core.drops, (core.settings.limits.memory_mib << 20) / kMemoryShare),
      statistics_({.keep_exited = std::chrono::seconds(core.settings.stats.keep_exited_seconds),
                   .max_exited_processes = core.settings.stats.max_exited_processes},
                  core.drops),
      windows_(core.settings.overhead.budget, launch_costs_,
               [this](uint64_t session_id, SessionOrder::Mode mode) {
                 SessionOrder order{.mode = mode};
                 order.sample_every = static_cast<uint32_t>(core_.settings.ingest.sample_every);
                 send_order({.session_id = session_id}, order, [](const Result<size_t>&) {});
               }),
      registry_({.keep_closed = std::chrono::seconds(core.settings.stats.keep_exited_seconds),
                 .max_closed = core.settings.stats.max_exited_processes},
                core.drops, memory_) {
  statistics_.follow(registry_);
  log_.follow(registry_);
  windows_.follow(registry_);
  costs_.follow(registry_);
}

Status SessionsPart::start() {
  pod_names_ = std::make_unique<PodNames>(
      [](const std::string& container) { return find_pod(cri_sockets(), container); }, core_.drops);
  if (!core_.settings.ingest.enabled) return absl::OkStatus();
  auto source = make_session_source(core_.settings, core_.options.runtime_dir,
                                    {.clock = core_.clock,
                                     .drops = core_.drops,
                                     .pod_names = *pod_names_,
                                     .proc = core_.reader.make_files(),
                                     .may_wait = [this] { return windows_.may_wait(); },
                                     .on_batch = [this] { post_taking(); }});
  // Another daemon's processes are not to be taken over.
  if (absl::IsAlreadyExists(source.status())) return source.status();
  if (!source.ok()) {
    add_problem({"sessions", std::string(source.status().message()),
                 "gpuperfd sees no GPU work until you fix this and restart it; if you do not need "
                 "it, set ingest.enabled = false"},
                "sessions not accepted");
    return absl::OkStatus();
  }
  source_ = *std::move(source);
  source_->start();
  core_.facts->ingest_socket = find_ingest_socket(core_.settings, core_.options.runtime_dir);
  return absl::OkStatus();
}

void SessionsPart::stop() {
  if (source_) {
    source_->stop();
    while (take_batch()) continue;
    source_.reset();
  }
  pod_names_.reset();
}

void SessionsPart::apply_settings(const Settings& settings) {
  const std::chrono::seconds keep(settings.stats.keep_exited_seconds);
  registry_.set_keep_closed(keep);
  statistics_.set_keep_exited(keep);
  limits_ = settings.overhead.budget;
}

void SessionsPart::advance(int64_t now_mono_ns) {
  windows_.set_limits(get_limits_in_force(limits_, core_.demand));
  windows_.set_standing_down(core_.demand.kind == OverheadDemand::Kind::kStandDown, now_mono_ns);
  windows_.advance(now_mono_ns);
  costs_.advance(now_mono_ns);
  registry_.expire(now_mono_ns);
  statistics_.expire(now_mono_ns);
}

void SessionsPart::fill(Snapshot& snapshot) const {
  registry_.fill(snapshot.gpu);
  statistics_.fill(snapshot.gpu);
  fill_self(snapshot);
  costs_.fill(snapshot);
}

void SessionsPart::fill_self(Snapshot& snapshot) const {
  SelfReport& self = snapshot.self;
  statistics_.fill(self);
  self.add(Bound::kSessionMemory, memory_.used(), memory_.max_bytes());
  self.add(MemoryPart::kSessions, memory_.used());
  if (pod_names_) pod_names_->fill(self);
  if (!source_) return;
  self.add(Bound::kSessionQueue, source_->take_highest_queued(), SessionSource::kQueueBatches);
  self.add(Bound::kSessionCubins, source_->get_cubin_bytes(), source_->max_cubin_bytes());
  const auto open = count_sessions(snapshot.gpu);
  self.add(Bound::kSessions, std::accumulate(open.begin(), open.end(), uint64_t{0}),
           core_.settings.ingest.max_sessions);
}

void SessionsPart::post_taking() {
  if (is_taking_posted_.exchange(true)) return;
  core_.loop->post([this] { take_some_events(); });
}

void SessionsPart::take_some_events() {
  is_taking_posted_ = false;
  if (source_ == nullptr) return;  // posted before the stop, run after it: all was taken
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    if (!take_batch()) return;
  }
  post_taking();
}

bool SessionsPart::take_batch() {
  const auto batch = source_->try_pop();
  if (!batch) return false;
  const int64_t now_mono_ns = core_.clock.mono_ns();
  for (const SessionEvent& event : *batch) registry_.apply(event, now_mono_ns);
  core_.changed = true;
  return true;
}

void SessionsPart::adopt(Fd connection, const AttachFacts& attach) {
  if (source_ != nullptr) source_->post_connection(std::move(connection), attach);
}

void SessionsPart::post_order(const SessionTarget& target, const SessionOrder& order,
                              ControlPort::SessionsDone done) {
  windows_.note_order(target, order.mode);
  send_order(target, order, std::move(done));
}

void SessionsPart::ask_progress(bool is_wanted) {
  if (source_ != nullptr) source_->post_progress(is_wanted);
}

void SessionsPart::send_order(const SessionTarget& target, const SessionOrder& order,
                              ControlPort::SessionsDone done) {
  if (source_ == nullptr) {
    return done(
        absl::FailedPreconditionError("gpuperfd accepts no sessions: ingest.enabled is false, or "
                                      "its socket does not work; see: gpuperfctl status"));
  }
  source_->post_order(target, order, [this, done = std::move(done)](Result<size_t> told) {
    core_.loop->post([done, told = std::move(told)] { done(told); });
  });
}

}  // namespace gpuperf
