#include "daemon/app/request_sessions.h"

#include <set>
#include <utility>

#include "daemon/app/kernel_part.h"
#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

std::set<uint32_t> list_sessions(const std::map<ProcessKey, uint32_t>& sessions) {
  std::set<uint32_t> found;
  for (const auto& [process, session] : sessions) found.insert(session);
  return found;
}

}  // namespace

const std::map<ProcessKey, uint32_t>& RequestSessions::keep(
    const std::vector<ProcessKey>& running) {
  const Programs* const programs = kernel_.programs();
  if (programs == nullptr || !programs->follows_requests()) return sessions_;
  std::map<ProcessKey, uint32_t> now;
  for (const ProcessKey& process : running) {
    const auto known = sessions_.find(process);
    if (known != sessions_.end()) {
      now.insert(*known);
      continue;
    }
    const auto session = read_session("/proc", process.pid);
    if (session.ok()) now.emplace(process, static_cast<uint32_t>(*session));
  }
  const std::set<uint32_t> before = list_sessions(sessions_), after = list_sessions(now);
  for (const uint32_t session : before) {
    if (!after.contains(session)) (void)programs->set_request_session(session, false);
  }
  for (const uint32_t session : after) {
    // With as many sessions as processes with steps there is always room.
    if (!before.contains(session)) (void)programs->set_request_session(session, true);
  }
  sessions_ = std::move(now);
  return sessions_;
}

}  // namespace gpuperf
