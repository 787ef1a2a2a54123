#include "daemon/session_intake.h"

#include <filesystem>
#include <utility>
#include <variant>

#include "daemon/base/log.h"
#include "daemon/model/session_names.h"
#include "daemon/resolve/container.h"

namespace gpuperf {
namespace {

// Processes that come and go by the thousand, or do it on purpose, must not fill the log.
constexpr uint32_t kLogPerSecond = 20;

size_t count_records(const SessionBatch& batch) {
  return batch.kernels.size() + batch.copies.size() + batch.apis.size() + batch.graphs.size() +
         batch.syncs.size() + batch.memory.size() + batch.overheads.size() + batch.gaps.size();
}

}  // namespace

std::string find_ingest_socket(const Settings& settings, const std::string& runtime_dir) {
  if (!settings.ingest.socket.empty()) return settings.ingest.socket;
  return (std::filesystem::absolute(runtime_dir) / "ingest.sock").string();
}

Result<std::unique_ptr<SessionSource>> make_session_source(const Settings& settings,
                                                           const std::string& runtime_dir,
                                                           SessionParts parts) {
  const auto& ingest = settings.ingest;
  return SessionSource::make(
      {.socket_path = find_ingest_socket(settings, runtime_dir),
       .limits = {.sessions = ingest.max_sessions,
                  .sessions_per_user = ingest.max_sessions_per_user,
                  .records_per_second = ingest.max_records_per_second},
       .order = {.sample_every = static_cast<uint32_t>(ingest.sample_every)},
       .flush_interval_ms = static_cast<uint32_t>(ingest.flush_interval_ms),
       .find_owner = [](const ProcessKey& process) { return read_owner(process, nullptr); },
       .name_pod = [&names = parts.pod_names](
                       Owner& owner) { return names.name(owner) != PodNames::State::kAsked; },
       .on_batch = std::move(parts.on_batch)},
      parts.clock, parts.drops);
}

SessionIntake::SessionIntake(const Clock& clock) : clock_(clock), log_(kLogPerSecond) {}

void SessionIntake::take(SessionEvent& event) {
  std::visit([this](auto& known) { take_event(known); }, event);
}

bool SessionIntake::may_log(int64_t mono_ns) { return log_.admit(mono_ns).allowed; }

void SessionIntake::take_event(SessionOpened& opened) {
  sessions_[opened.session_id] = {.process = opened.process, .comm = opened.owner.comm};
  if (!may_log(opened.mono_ns)) return;
  log_info("session open", {{"session", std::to_string(opened.session_id)},
                            {"pid", std::to_string(opened.process.pid)},
                            {"comm", opened.owner.comm},
                            {"injector", opened.injector_version},
                            {"open", std::to_string(sessions_.size())}});
}

void SessionIntake::take_event(SessionBatch& batch) {
  Session& session = sessions_[batch.session_id];
  session.records += count_records(batch);
  session.names += batch.names.size();
}

void SessionIntake::take_event(SessionStatus& status) {
  Session& session = sessions_[status.session_id];
  if (std::exchange(session.state, status.state) == status.state) return;
  if (!may_log(clock_.mono_ns())) return;
  log_info("session state", {{"session", std::to_string(status.session_id)},
                             {"pid", std::to_string(session.process.pid)},
                             {"state", std::string(get_session_state_name(status.state))},
                             {"detail", status.detail}});
}

void SessionIntake::take_event(SessionClosed& closed) {
  const auto found = sessions_.find(closed.session_id);
  if (found == sessions_.end()) return;  // the source tells of every opening first
  const Session session = std::move(found->second);
  sessions_.erase(found);
  if (!may_log(closed.mono_ns)) return;
  log_info("session closed", {{"session", std::to_string(closed.session_id)},
                              {"pid", std::to_string(session.process.pid)},
                              {"comm", session.comm},
                              {"reason", closed.reason},
                              {"records", std::to_string(session.records)},
                              {"names", std::to_string(session.names)},
                              {"open", std::to_string(sessions_.size())}});
}

void SessionIntake::take_event(ClockStepped& stepped) {
  log_warn("wall clock set", {{"step_ns", std::to_string(stepped.step_ns)}});
}

}  // namespace gpuperf
