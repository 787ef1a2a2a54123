#include "daemon/state/session_table.h"

#include <algorithm>
#include <utility>

namespace gpuperf {

SessionRow& SessionTable::change(Slot& slot) {
  if (slot.shared) slot.row = std::make_shared<SessionRow>(*slot.row);
  slot.shared = false;
  return *slot.row;
}

SessionTable::Slot* SessionTable::find_open_slot(uint64_t session_id) {
  const auto found = sessions_.find(session_id);
  return found == sessions_.end() || !found->second.row->open ? nullptr : &found->second;
}

void SessionTable::apply(SessionOpened opened) {
  const uint64_t id = opened.session_id;
  Slot& slot = sessions_[id];
  if (slot.row != nullptr) return;
  slot.row = std::make_shared<SessionRow>();
  slot.row->state_since_mono_ns = opened.mono_ns;
  slot.row->status.session_id = id;
  slot.row->facts = std::move(opened);
}

void SessionTable::apply(const SessionStatus& status, int64_t now_mono_ns) {
  Slot* slot = find_open_slot(status.session_id);
  if (slot == nullptr) return;
  SessionRow& row = change(*slot);
  count_losses(row, status);
  if (row.status.state != status.state) row.state_since_mono_ns = now_mono_ns;
  row.status = status;
}

void SessionTable::count_losses(const SessionRow& row, const SessionStatus& status) {
  auto& known = losses_[row.facts.process];
  for (size_t i = 0; i < known.size(); ++i) {
    const uint64_t now = status.losses[i];
    lost_[i] += now - std::min(known[i], now);
    known[i] = std::max(known[i], now);
  }
}

void SessionTable::apply(const SessionClosed& closed) {
  Slot* slot = find_open_slot(closed.session_id);
  if (slot == nullptr) return;
  SessionRow& row = change(*slot);
  row.open = false;
  row.closed_mono_ns = closed.mono_ns;
  row.closed_reason = closed.reason;
  closed_.push_back(closed.session_id);
}

void SessionTable::add_gap(uint64_t session_id, const SessionGap& gap) {
  Slot* slot = find_open_slot(session_id);
  if (slot == nullptr || gap.cause >= GPUPERF_SESSION_CAUSE_COUNT) return;
  GapTotals& totals = change(*slot).gaps[gap.cause];
  ++totals.count;
  totals.total_ns += gap.duration_ns;
}

void SessionTable::set_join(uint64_t session_id, const JoinTotals& join) {
  Slot* slot = find_open_slot(session_id);
  if (slot == nullptr || slot->row->join == join) return;
  change(*slot).join = join;
}

void SessionTable::expire(int64_t now_mono_ns) {
  const int64_t keep_ns = std::chrono::nanoseconds(limits_.keep_closed).count();
  while (!closed_.empty()) {
    const auto oldest = sessions_.find(closed_.front());
    const bool is_old = now_mono_ns - oldest->second.row->closed_mono_ns >= keep_ns;
    if (!is_old && closed_.size() <= limits_.max_closed) return;
    const ProcessKey process = oldest->second.row->facts.process;
    sessions_.erase(oldest);
    closed_.pop_front();
    const bool has_others = std::ranges::any_of(
        sessions_, [&](const auto& entry) { return entry.second.row->facts.process == process; });
    if (!has_others) losses_.erase(process);
  }
}

void SessionTable::fill(GpuReport& report) const {
  report.sessions.clear();
  for (auto entry = sessions_.rbegin(); entry != sessions_.rend(); ++entry) {
    entry->second.shared = true;
    report.sessions.push_back(entry->second.row);
  }
  std::ranges::stable_partition(report.sessions, [](const auto& row) { return row->open; });
  report.lost_records = lost_;
  report.clock_steps = clock_steps_;
}

std::vector<uint64_t> SessionTable::find_open(uint32_t pid, uint64_t session_id) const {
  std::vector<uint64_t> ids;
  for (const auto& [id, slot] : sessions_) {
    const bool matches =
        (pid == 0 || slot.row->facts.process.pid == pid) && (session_id == 0 || id == session_id);
    if (slot.row->open && matches) ids.push_back(id);
  }
  return ids;
}

}  // namespace gpuperf
