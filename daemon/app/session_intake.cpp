#include "daemon/app/session_intake.h"

#include <filesystem>
#include <utility>

#include "daemon/owner/container.h"

namespace gpuperf {

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
       .order = {.is_later = settings.overhead.budget.get_least_percent() > 0,
                 .sample_every = static_cast<uint32_t>(ingest.sample_every)},
       .hooked_calls = ingest.hooked_calls && settings.overhead.launch_hooks,
       .allocations = ingest.allocations,
       .flush_interval_ms = static_cast<uint32_t>(ingest.flush_interval_ms),
       .find_owner = [proc = std::move(parts.proc)](
                         const ProcessKey& process) { return read_owner(proc, process, nullptr); },
       .may_wait = std::move(parts.may_wait),
       .name_pod = [&names = parts.pod_names](
                       Owner& owner) { return names.name(owner) != PodNames::State::kAsked; },
       .on_batch = std::move(parts.on_batch)},
      parts.clock, parts.drops);
}

}  // namespace gpuperf
