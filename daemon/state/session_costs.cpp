#include "daemon/state/session_costs.h"

#include <algorithm>
#include <memory>

#include "injector/session_abi.h"

namespace gpuperf {
namespace {

constexpr int64_t kIntervalNs = 1'000'000'000;

}  // namespace

SessionCosts::Session::Session(SessionCosts& its_costs, SessionEntry& its_entry)
    : costs(its_costs), entry(its_entry) {
  costs.sessions_[entry.row().facts.session_id] = this;
}

void SessionCosts::Session::close(const SessionClosed& closed) {
  costs.sessions_.erase(closed.session_id);
}

void SessionCosts::Session::take_status(const SessionStatus& status, int64_t /*now_mono_ns*/) {
  is_attached = (status.level & GPUPERF_SESSION_LEVEL_CUPTI) != 0 &&
                status.state != GPUPERF_SESSION_STATE_COLLECTING;
}

// The kernels of a graph are launched by the graph.
void SessionCosts::Session::take_batch(const SessionBatch& batch, int64_t /*now_mono_ns*/) {
  for (const Place& place : batch.places) devices.insert(place.device);
  launches += batch.graphs.size() + batch.copies.size();
  for (const KernelRecord& kernel : batch.kernels) {
    launches += kernel.graph_id == 0 ? 1 : 0;
    work_ns += kernel.duration_ns;
  }
  for (const CopyRecord& copy : batch.copies) work_ns += copy.duration_ns;
  for (const OverheadRecord& overhead : batch.overheads) {
    if (overhead.type == GPUPERF_OVERHEAD_WINDOW) held_ns += overhead.duration_ns;
  }
}

void SessionCosts::follow(SessionRegistry& sessions) {
  sessions.add([this](SessionEntry& entry) { return std::make_unique<Session>(*this, entry); });
}

void SessionCosts::advance(int64_t now_mono_ns) {
  loop_thread_.check();
  const int64_t elapsed_ns = now_mono_ns - since_mono_ns_;
  if (elapsed_ns < kIntervalNs) return;
  const auto interval_ns = static_cast<double>(elapsed_ns);
  const bool is_first = since_mono_ns_ == 0;
  since_mono_ns_ = now_mono_ns;
  for (const auto& [id, session] : sessions_) {
    const auto devices = static_cast<double>(std::max<size_t>(session->devices.size(), 1));
    const auto measured = launch_costs_.find(session->entry.row().facts.process);
    const bool costs_nothing =
        !measured && static_cast<double>(session->work_ns) >= kBusyRatio * devices * interval_ns;
    const double launches_ns =
        costs_nothing ? 0 : static_cast<double>(session->launches) * get_launch_cost_ns(measured);
    const double attached_ratio = session->is_attached
                                      ? launch_costs_.get_rate(session->entry.row().facts.process) *
                                            static_cast<double>(kAttachedCostNs) / 1e9
                                      : 0;
    session->ratio =
        is_first
            ? 0
            : (launches_ns + static_cast<double>(session->held_ns)) / interval_ns + attached_ratio;
    if (measured && session->entry.row().launch_cost != *measured) {
      session->entry.change().launch_cost = *measured;
    }
    session->launches = session->work_ns = session->held_ns = 0;
  }
}

void SessionCosts::fill(Snapshot& snapshot) const {
  for (const auto& [id, session] : sessions_) {
    if (session->ratio == 0) continue;
    const SessionOpened& facts = session->entry.row().facts;
    add_overhead(snapshot, {.process = facts.process,
                            .owner = facts.owner,
                            .ratio = session->ratio,
                            .cupti_ratio = session->ratio});
  }
}

}  // namespace gpuperf
