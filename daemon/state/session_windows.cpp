#include "daemon/state/session_windows.h"

#include <algorithm>
#include <utility>

#include "daemon/state/session_costs.h"
#include "injector/session_abi.h"

namespace gpuperf {
namespace {

bool is_of(const SessionRow& session, const SessionWindows::Target& target) {
  const auto is_its = [&session](const ProcessKey& key) {
    return is_same_process(key, session.facts.process);
  };
  return target.all_processes || std::ranges::any_of(target.processes, is_its);
}

}  // namespace

SessionWindows::Session::Session(SessionWindows& its_windows, SessionEntry& its_entry)
    : windows(its_windows), entry(its_entry) {
  windows.sessions_[id()] = this;
}

void SessionWindows::Session::close(const SessionClosed&) { windows.sessions_.erase(id()); }

void SessionWindows::Session::take_batch(const SessionBatch& batch, int64_t now_mono_ns) {
  seen_mono_ns = now_mono_ns;
  has_graphs |= !batch.graphs.empty();
  for (const Place& place : batch.places) devices.insert(place.device);
  launches += batch.kernels.size() + batch.copies.size() + batch.graphs.size();
  for (const KernelRecord& kernel : batch.kernels) {
    has_graphs |= kernel.graph_id != 0;
    work_ns += kernel.duration_ns;
    if (kernel.graph_id != 0) continue;
    if (window.launches++ == 0) window.first_mono_ns = window.last_mono_ns = kernel.start_mono_ns;
    window.first_mono_ns = std::min(window.first_mono_ns, kernel.start_mono_ns);
    window.last_mono_ns = std::max(window.last_mono_ns, kernel.start_mono_ns);
  }
  for (const CopyRecord& copy : batch.copies) work_ns += copy.duration_ns;
  for (const OverheadRecord& overhead : batch.overheads) {
    if (overhead.type == GPUPERF_OVERHEAD_WINDOW) opening_ns += overhead.duration_ns;
  }
}

void SessionWindows::Session::take_status(const SessionStatus& status, int64_t now_mono_ns) {
  const bool collects = status.state == GPUPERF_SESSION_STATE_COLLECTING;
  are_calls_hooked = (status.level & GPUPERF_SESSION_LEVEL_HOOKED) != 0;
  are_graphs_covered = (status.level & GPUPERF_SESSION_LEVEL_GRAPHS) != 0;
  if (phase == Phase::kWaiting && status.state == GPUPERF_SESSION_STATE_PAUSED) {
    if (rest_mono_ns == 0) rest_mono_ns = now_mono_ns;
    set_in_windows(*this, true);
  } else if (phase == Phase::kWaiting && collects) {
    phase = Phase::kCollecting;  // it was not to wait
  }
  if (!collects || phase != Phase::kCollecting) {
    since_mono_ns = 0;
  } else if (since_mono_ns == 0) {
    windows.begin_look(*this, now_mono_ns);
  }
}

void SessionWindows::follow(SessionRegistry& sessions) {
  sessions.add([this](SessionEntry& entry) { return std::make_unique<Session>(*this, entry); });
}

void SessionWindows::begin_look(Session& session, int64_t now_mono_ns) {
  session.since_mono_ns = now_mono_ns;
  session.due_mono_ns = now_mono_ns + kWindowNs;
  session.launches = session.work_ns = 0;
}

// How much of the look the records are of: later ones are still in the process. A single batch at
// the look's beginning says little.
double SessionWindows::get_seen_ns(const Session& session) {
  return static_cast<double>(std::max(session.seen_mono_ns - session.since_mono_ns, kWindowNs / 2));
}

double SessionWindows::get_cost_ratio(const Session& session) const {
  return static_cast<double>(session.launches) *
         SessionCosts::get_launch_cost_ns(costs_.find(session.entry.row().facts.process)) /
         get_seen_ns(session);
}

double SessionWindows::get_budget_ratio(const Session& session) const {
  return kCuptiShare * limits_.get_ratio(session.entry.row().facts.owner.comm);
}

bool SessionWindows::must_rest(const Session& session) const {
  const double budget_ratio = get_budget_ratio(session);
  if (budget_ratio <= 0) return false;
  if (session.has_graphs || !session.are_calls_hooked || session.is_held) return false;
  const auto device_ns =
      get_seen_ns(session) * static_cast<double>(std::max<size_t>(session.devices.size(), 1));
  return static_cast<double>(session.work_ns) < SessionCosts::kBusyRatio * device_ns &&
         get_cost_ratio(session) > budget_ratio;
}

// Of one that has not collected yet.
bool SessionWindows::must_wait(Session& session, int64_t now_mono_ns) const {
  const double budget_ratio = get_budget_ratio(session);
  if (budget_ratio <= 0 || session.are_graphs_covered ||
      now_mono_ns - session.rest_mono_ns >= kYoungNs) {
    return false;
  }
  const ProcessKey& process = session.entry.row().facts.process;
  const double rate = costs_.get_rate(process);
  const double ratio = rate * SessionCosts::get_launch_cost_ns(costs_.find(process)) / 1e9;
  if (rate == 0 || ratio > budget_ratio) {
    session.light_mono_ns = 0;
  } else if (session.light_mono_ns == 0) {
    session.light_mono_ns = now_mono_ns;
  }
  return session.light_mono_ns == 0 || now_mono_ns - session.light_mono_ns < kLightNs;
}

void SessionWindows::set_in_windows(Session& session, bool is_in_windows) {
  if (session.entry.row().is_in_windows == is_in_windows) return;
  session.entry.change().is_in_windows = is_in_windows;
}

void SessionWindows::open(Session& session, int64_t now_mono_ns) {
  // Until the window's end, and for what it still sends then.
  if (session.phase == Phase::kResting) {
    session.entry.change().window_weight =
        static_cast<uint32_t>((now_mono_ns - session.rest_mono_ns) / kWindowNs + 1);
  }
  session.phase = Phase::kCollecting;
  session.since_mono_ns = 0;
  session.opening_ns = 0;
  session.window = {.begin_mono_ns = now_mono_ns};
  order_(session.id(), SessionOrder::Mode::kRun);
}

// So long that window and rest together cost no more than the budget.
void SessionWindows::rest(Session& session, int64_t now_mono_ns) {
  const auto open_ns = static_cast<double>(now_mono_ns - session.since_mono_ns);
  const double cost_ns =
      get_cost_ratio(session) * open_ns + static_cast<double>(session.opening_ns);
  // What opening cost is what the process says: it may be beyond any integer.
  const double rest_ns =
      std::clamp(cost_ns / get_budget_ratio(session) - open_ns, static_cast<double>(kRestNsMin),
                 static_cast<double>(kRestNsMax));
  if (session.window.begin_mono_ns != 0) {
    session.window.end_mono_ns = now_mono_ns;
    costs_.add_window(session.entry.row().facts.process, std::exchange(session.window, {}));
  }
  session.phase = Phase::kResting;
  session.rest_mono_ns = now_mono_ns;
  set_in_windows(session, true);
  session.since_mono_ns = 0;
  session.due_mono_ns = now_mono_ns + std::min(static_cast<int64_t>(rest_ns), session.rest_ns_max);
  session.rest_ns_max = std::min(2 * session.rest_ns_max, kRestNsMax);
  order_(session.id(), SessionOrder::Mode::kPause);
}

// What comes after it stands for nothing of what was before.
void SessionWindows::set_standing_down(bool is_standing_down, int64_t now_mono_ns) {
  loop_thread_.check();
  const bool was_standing_down = std::exchange(is_standing_down_, is_standing_down);
  if (!was_standing_down || is_standing_down) return;
  for (const auto& [id, session] : sessions_) {
    if (session->phase != Phase::kResting) continue;
    session->rest_mono_ns = session->due_mono_ns = now_mono_ns;
  }
}

void SessionWindows::stand_down(Session& session) {
  if (session.phase != Phase::kCollecting) return;
  session.phase = Phase::kResting;
  session.since_mono_ns = 0;
  session.window = {};
  order_(session.id(), SessionOrder::Mode::kPause);
}

void SessionWindows::advance(int64_t now_mono_ns) {
  loop_thread_.check();
  for (const auto& [id, session] : sessions_) {
    if (is_standing_down_) {
      stand_down(*session);
    } else if (session->phase == Phase::kWaiting) {
      if (session->rest_mono_ns != 0 && !must_wait(*session, now_mono_ns)) {
        open(*session, now_mono_ns);
      }
    } else if (session->phase == Phase::kResting) {
      if (now_mono_ns >= session->due_mono_ns || get_budget_ratio(*session) <= 0) {
        open(*session, now_mono_ns);
      }
    } else if (session->since_mono_ns != 0 && now_mono_ns >= session->due_mono_ns) {
      if (must_rest(*session)) {
        rest(*session, now_mono_ns);
      } else {
        session->window = {};
        if (!session->is_held) {
          set_in_windows(*session, false);
          session->rest_ns_max = kFirstRestNs;
        }
        if (session->entry.row().window_weight != 1) session->entry.change().window_weight = 1;
        begin_look(*session, now_mono_ns);
      }
    }
  }
}

std::set<ProcessKey, ProcessOrder> SessionWindows::list_in_windows() const {
  std::set<ProcessKey, ProcessOrder> processes;
  for (const auto& [id, session] : sessions_) {
    const SessionRow& row = session->entry.row();
    if (row.is_in_windows) processes.insert(row.facts.process);
  }
  return processes;
}

void SessionWindows::note_order(const SessionTarget& target, SessionOrder::Mode mode) {
  loop_thread_.check();
  for (const auto& [id, session] : sessions_) {
    if (target.session_id != 0 && target.session_id != id) continue;
    if (target.pid != 0 && target.pid != session->entry.row().facts.process.pid) continue;
    session->phase = mode == SessionOrder::Mode::kRun ? Phase::kCollecting : Phase::kLeft;
    set_in_windows(*session, false);
    session->since_mono_ns = 0;
  }
}

bool SessionWindows::open(const Target& target, int64_t now_mono_ns) {
  loop_thread_.check();
  bool is_any_opened = false;
  for (const auto& [id, session] : sessions_) {
    if (!is_closed(*session) || !is_of(session->entry.row(), target)) continue;
    open(*session, now_mono_ns);
    is_any_opened = true;
  }
  return is_any_opened;
}

bool SessionWindows::is_opening(const Target& target) const {
  return std::ranges::any_of(sessions_, [&target](const auto& entry) {
    const Session& session = *entry.second;
    const SessionRow& row = session.entry.row();
    return session.phase == Phase::kCollecting && row.is_in_windows &&
           row.status.state != GPUPERF_SESSION_STATE_COLLECTING && is_of(row, target);
  });
}

void SessionWindows::hold_open(const std::vector<Target>& targets, int64_t now_mono_ns) {
  loop_thread_.check();
  may_wait_ = targets.empty();
  for (const auto& [id, session] : sessions_) {
    session->is_held = std::ranges::any_of(targets, [&session = *session](const Target& target) {
      return is_of(session.entry.row(), target);
    });
    const bool may_open = !is_standing_down_;
    if (session->is_held && may_open && is_closed(*session)) open(*session, now_mono_ns);
  }
}

}  // namespace gpuperf
