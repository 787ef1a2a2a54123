#include "daemon/state/session_registry.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace gpuperf {

SessionEntry::SessionEntry(const SessionOpened& opened, SessionMemory& memory)
    : memory_(memory), row_(std::make_shared<SessionRow>()) {
  row_->facts = opened;
  row_->status.session_id = opened.session_id;
  row_->state_since_mono_ns = opened.mono_ns;
}

SessionRow& SessionEntry::change() {
  if (std::exchange(is_shared_, false)) row_ = std::make_shared<SessionRow>(*row_);
  return *row_;
}

std::shared_ptr<const SessionRow> SessionEntry::share() const {
  is_shared_ = true;
  return row_;
}

SessionRegistry::Session* SessionRegistry::find_open(uint64_t session_id) {
  const auto found = sessions_.find(session_id);
  return found == sessions_.end() || !found->second.entry.row().open ? nullptr : &found->second;
}

void SessionRegistry::set_keep_closed(std::chrono::seconds keep_closed) {
  loop_thread_.check();
  limits_.keep_closed = keep_closed;
}

void SessionRegistry::apply(const SessionEvent& event, int64_t now_mono_ns) {
  loop_thread_.check();
  std::visit([&](const auto& known) { take(known, now_mono_ns); }, event);
}

void SessionRegistry::take(const SessionOpened& opened, int64_t) {
  if (sessions_.contains(opened.session_id)) return;
  const auto place =
      sessions_.emplace(opened.session_id, Session{SessionEntry(opened, memory_), {}}).first;
  Session& session = place->second;
  for (const MakeFollower& follow : features_) session.followers.push_back(follow(session.entry));
}

void SessionRegistry::take(const SessionBatch& batch, int64_t now_mono_ns) {
  Session* session = find_open(batch.session_id);
  if (session == nullptr) return drops_.add(DropCause::kSessionUnknown, count_records(batch));
  for (const auto& follower : session->followers) follower->take_batch(batch, now_mono_ns);
  for (const SessionGap& gap : batch.gaps) {
    if (gap.cause >= GPUPERF_SESSION_CAUSE_COUNT) continue;
    GapTotals& totals = session->entry.change().gaps[gap.cause];
    ++totals.count;
    totals.total_ns += gap.duration_ns;
  }
}

void SessionRegistry::take(const SessionStatus& status, int64_t now_mono_ns) {
  Session* session = find_open(status.session_id);
  if (session == nullptr) return;
  for (const auto& follower : session->followers) follower->take_status(status, now_mono_ns);
  SessionRow& row = session->entry.change();
  count_losses(row, status);
  if (row.status.state != status.state) {
    row.collected_ns = get_collected_ns(row, now_mono_ns);
    row.state_since_mono_ns = now_mono_ns;
  }
  row.status = status;
}

void SessionRegistry::count_losses(const SessionRow& row, const SessionStatus& status) {
  auto& known = losses_[row.facts.process];
  for (size_t i = 0; i < known.size(); ++i) {
    const uint64_t now = status.losses[i];
    lost_[i] += now - std::min(known[i], now);
    known[i] = std::max(known[i], now);
  }
}

void SessionRegistry::take(const SessionClosed& closed, int64_t) {
  Session* session = find_open(closed.session_id);
  if (session == nullptr) return;
  for (const auto& follower : session->followers) follower->close(closed);
  session->followers.clear();
  SessionRow& row = session->entry.change();
  row.open = false;
  row.closed_mono_ns = closed.mono_ns;
  row.closed_reason = closed.reason;
  closed_.push_back(closed.session_id);
}

void SessionRegistry::take(const ClockStepped&, int64_t) { ++clock_steps_; }

void SessionRegistry::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  for (const auto& [id, session] : sessions_) {
    for (const auto& follower : session.followers) follower->expire(now_mono_ns);
  }
  const int64_t keep_ns = std::chrono::nanoseconds(limits_.keep_closed).count();
  while (!closed_.empty()) {
    const auto oldest = sessions_.find(closed_.front());
    const SessionRow& row = oldest->second.entry.row();
    const bool is_old = now_mono_ns - row.closed_mono_ns >= keep_ns;
    if (!is_old && closed_.size() <= limits_.max_closed) return;
    const ProcessKey process = row.facts.process;
    sessions_.erase(oldest);
    closed_.pop_front();
    const bool has_others = std::ranges::any_of(sessions_, [&](const auto& other) {
      return other.second.entry.row().facts.process == process;
    });
    if (!has_others) losses_.erase(process);
  }
}

void SessionRegistry::fill(GpuReport& report) const {
  report.sessions.clear();
  for (auto session = sessions_.rbegin(); session != sessions_.rend(); ++session) {
    report.sessions.push_back(session->second.entry.share());
  }
  std::stable_partition(report.sessions.begin(), report.sessions.end(),
                        [](const auto& row) { return row->open; });
  report.lost_records = lost_;
  report.clock_steps = clock_steps_;
}

}  // namespace gpuperf
