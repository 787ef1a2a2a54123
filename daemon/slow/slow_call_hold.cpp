#include "daemon/slow/slow_call_hold.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/model/call_role.h"
#include "daemon/model/session_names.h"
#include "injector/session_abi.h"

namespace gpuperf {
namespace {

uint64_t get_end_ns(const SlowCall& call) {
  return call.event.start_mono_ns + call.event.duration_ns;
}

// Functions in which the driver waits for work to end.
bool waits_for_gpu(const SlowCall& call) {
  const CallRole role = find_call_role(call.category, call.function);
  return role == CallRole::kSync || role == CallRole::kCopy || role == CallRole::kFree;
}

void add_once(std::vector<std::string>& texts, std::string text) {
  if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
}

}  // namespace

// Its session is forgotten after its close only.
struct SlowCallHold::Follower final : SessionFollower {
  Follower(SlowCallHold& its_hold, Session& its_session) : hold(its_hold), session(its_session) {}
  void take_status(const SessionStatus& status, int64_t) override { session.status = status; }
  void close(const SessionClosed& closed) override {
    const auto now_ns = static_cast<uint64_t>(closed.mono_ns);
    session.closed_mono_ns = std::max<uint64_t>(now_ns, 1);
    hold.forget_sessions(now_ns);
  }

  SlowCallHold& hold;
  Session& session;
};

void SlowCallHold::follow(SessionRegistry& sessions) {
  sessions.add([this](const SessionEntry& entry) {
    const SessionOpened& opened = entry.row().facts;
    sessions_.push_back(
        {.process = opened.process, .opened_mono_ns = static_cast<uint64_t>(opened.mono_ns)});
    return std::make_unique<Follower>(*this, sessions_.back());
  });
}

// A short program's last calls come after the end of its session.
void SlowCallHold::forget_sessions(uint64_t now_mono_ns) {
  std::erase_if(sessions_, [now_mono_ns](const Session& session) {
    return session.closed_mono_ns != 0 && session.closed_mono_ns + kKeepSessionNs < now_mono_ns;
  });
  const auto is_ended = [](const Session& session) { return session.closed_mono_ns != 0; };
  if (std::ranges::count_if(sessions_, is_ended) > static_cast<ptrdiff_t>(kMaxEndedSessions)) {
    sessions_.erase(std::ranges::find_if(sessions_, is_ended));
  }
}

// Of several the latest.
const SlowCallHold::Session* SlowCallHold::find_session(const ProcessKey& process) const {
  const auto found = std::ranges::find_if(
      sessions_.rbegin(), sessions_.rend(),
      [&process](const Session& session) { return is_same_process(session.process, process); });
  return found == sessions_.rend() ? nullptr : &*found;
}

std::vector<std::string> SlowCallHold::list_missing(const Session& session, uint64_t start_mono_ns,
                                                    uint64_t end_mono_ns) const {
  std::vector<std::string> missing;
  if (session.opened_mono_ns > start_mono_ns) {
    missing.push_back("its session began after the call");
  }
  if (session.closed_mono_ns != 0 && session.closed_mono_ns < end_mono_ns) {
    missing.push_back("its session ended before the call");
  }
  if (!session.status) {
    missing.push_back("its session has not reported yet what it collects");
    return missing;
  }
  const SessionStatus& status = *session.status;
  const auto cause = get_session_cause_name(status.cause);
  if (status.state != GPUPERF_SESSION_STATE_COLLECTING) {
    missing.push_back(
        fmt::format("its session is {} ({})", get_session_state_name(status.state), cause));
    return missing;
  }
  if ((status.level & GPUPERF_SESSION_LEVEL_KERNELS) == 0) {
    missing.push_back(fmt::format("kernels are not collected ({})", cause));
  }
  if ((status.level & GPUPERF_SESSION_LEVEL_COPIES) == 0) {
    missing.push_back(fmt::format("copies and memsets are not collected ({})", cause));
  }
  if (status.sample_every > 1) {
    missing.push_back(fmt::format("one launch of {} is recorded", status.sample_every));
  }
  return missing;
}

void SlowCallHold::go_without(SlowCall& call, const std::string& why) {
  auto gpu = std::make_shared<GpuDuringCall>();
  gpu->missing = {why};
  call.gpu = std::move(gpu);
}

bool SlowCallHold::add(SlowCall& call, uint64_t now_mono_ns, uint64_t settle_ns) {
  if (call.event.in_flight) return false;
  const Session* session = find_session(call.event.process);
  if (session == nullptr) return false;
  if (!recorder_.is_recording()) {
    go_without(call, "the flight recorder is off (trace.recorder)");
    return false;
  }
  if (calls_.size() >= kMaxHeld) {
    drops_.add(DropCause::kSlowGpuSide);
    go_without(call, "too many calls were slow at the same time");
    return false;
  }
  const uint64_t start_ns = call.event.start_mono_ns;
  Entry entry{.due_mono_ns = std::max(get_end_ns(call) + settle_ns, now_mono_ns),
              .pin = recorder_.pin(start_ns, kMaxPinBytes, kBeforeBytes),
              .missing = list_missing(*session, start_ns, get_end_ns(call))};
  if (recorder_.forgotten_mono_ns() > start_ns) {
    entry.missing.push_back("the flight recorder does not reach back to its start");
  }
  entry.pin->is_for_capture = false;
  entry.call = std::move(call);
  calls_.push_back(std::move(entry));
  return true;
}

std::optional<SlowCallHold::Batch> SlowCallHold::take_due(uint64_t now_mono_ns) {
  const auto is_due = [now_mono_ns](const Entry& entry) {
    return entry.batch_id == 0 && entry.due_mono_ns <= now_mono_ns;
  };
  const auto first = std::ranges::find_if(calls_, is_due);
  if (is_batch_out_ || first == calls_.end()) return std::nullopt;
  is_batch_out_ = true;
  Batch batch{
      .id = ++last_batch_, .process = first->call.event.process, .from_mono_ns = UINT64_MAX};
  std::vector<std::shared_ptr<TraceRecorder::Pin>> pins;
  for (Entry& entry : calls_) {
    if (!is_due(entry) || !is_same_process(entry.call.event.process, batch.process)) continue;
    entry.batch_id = batch.id;
    const uint64_t start_ns = entry.call.event.start_mono_ns;
    const uint64_t end_ns = get_end_ns(entry.call);
    if (const Session* session = find_session(batch.process)) {
      // Whatever it said meanwhile: it may have been about that time.
      for (std::string& why : list_missing(*session, start_ns, end_ns)) {
        add_once(entry.missing, std::move(why));
      }
    }
    batch.from_mono_ns = std::min(batch.from_mono_ns, start_ns);
    batch.to_mono_ns = std::max(batch.to_mono_ns, end_ns + kAfterNs);
    batch.lost_events = std::max(batch.lost_events, entry.pin->lost_events);
    batch.calls.push_back({.start_mono_ns = start_ns,
                           .duration_ns = entry.call.event.duration_ns,
                           .tid = entry.call.event.tid,
                           .waits_for_gpu = waits_for_gpu(entry.call),
                           .missing = entry.missing});
    pins.push_back(std::move(entry.pin));
  }
  batch.window = recorder_.take(pins);
  return batch;
}

template <typename Condition>
std::vector<SlowCall> SlowCallHold::release(const Condition& is_released) {
  std::vector<SlowCall> released;
  for (Entry& entry : calls_) {
    if (is_released(entry)) released.push_back(std::move(entry.call));
  }
  std::erase_if(calls_, is_released);
  return released;
}

std::vector<SlowCall> SlowCallHold::finish(uint64_t batch_id, std::vector<GpuDuringCall> found) {
  if (batch_id == last_batch_) is_batch_out_ = false;
  size_t next = 0;
  for (Entry& entry : calls_) {
    if (entry.batch_id != batch_id) continue;
    if (next >= found.size()) {
      drops_.add(DropCause::kSlowGpuSide);
      go_without(entry.call, "its records could not be read");
      continue;
    }
    entry.call.gpu = std::make_shared<const GpuDuringCall>(std::move(found[next++]));
  }
  return release([batch_id](const Entry& entry) { return entry.batch_id == batch_id; });
}

std::vector<SlowCall> SlowCallHold::give_up(uint64_t now_mono_ns) {
  const auto is_late = [now_mono_ns](const Entry& entry) {
    return entry.due_mono_ns + kMaxWaitNs < now_mono_ns;
  };
  for (Entry& entry : calls_) {
    if (!is_late(entry)) continue;
    drops_.add(DropCause::kSlowGpuSide);
    go_without(entry.call, "reading its records took too long");
  }
  return release(is_late);
}

std::vector<SlowCall> SlowCallHold::release_all() {
  for (Entry& entry : calls_) {
    drops_.add(DropCause::kSlowGpuSide);
    go_without(entry.call, "gpuperfd stopped before its records arrived");
  }
  return release([](const Entry&) { return true; });
}

}  // namespace gpuperf
