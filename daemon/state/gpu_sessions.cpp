#include "daemon/state/gpu_sessions.h"

#include <variant>

namespace gpuperf {

GpuSessions::GpuSessions(const Limits& limits, DropCounters& drops)
    : table_({.keep_closed = limits.keep_exited, .max_closed = limits.max_exited_processes}),
      state_(
          {.keep_exited = limits.keep_exited, .max_exited_processes = limits.max_exited_processes},
          drops) {}

void GpuSessions::apply(const SessionEvent& event, int64_t now_mono_ns) {
  if (const auto* opened = std::get_if<SessionOpened>(&event)) {
    table_.apply(*opened);
    state_.apply(*opened);
  } else if (const auto* batch = std::get_if<SessionBatch>(&event)) {
    state_.apply(*batch, now_mono_ns);
    for (const SessionGap& gap : batch->gaps) table_.add_gap(batch->session_id, gap);
    if (const JoinTotals* join = state_.find_join(batch->session_id)) {
      table_.set_join(batch->session_id, *join);
    }
  } else if (const auto* status = std::get_if<SessionStatus>(&event)) {
    table_.apply(*status, now_mono_ns);
    state_.apply(*status);
  } else if (const auto* closed = std::get_if<SessionClosed>(&event)) {
    table_.apply(*closed);
    state_.apply(*closed);
  } else if (const auto* stepped = std::get_if<ClockStepped>(&event)) {
    table_.apply(*stepped);
  }
}

void GpuSessions::set_keep_exited(std::chrono::seconds keep_exited) {
  table_.set_keep_closed(keep_exited);
  state_.set_keep_exited(keep_exited);
}

void GpuSessions::expire(int64_t now_mono_ns) {
  table_.expire(now_mono_ns);
  state_.expire(now_mono_ns);
  for (const uint64_t id : table_.find_open(0, 0)) {
    if (const JoinTotals* join = state_.find_join(id)) table_.set_join(id, *join);
  }
}

void GpuSessions::fill(GpuReport& report) const {
  table_.fill(report);
  state_.fill(report);
}

}  // namespace gpuperf
