#include "daemon/state/launch_join.h"

#include <algorithm>

namespace gpuperf {
namespace {

constexpr int64_t kLookPeriodNs = 1'000'000'000;
// A look passes over the whole table: at a larger one, that many bytes a second on average.
constexpr int64_t kLookBytes = int64_t{1} << 20;

uint32_t get_duration_ns(const LaunchJoin::Api& api) {
  return static_cast<uint32_t>(std::min<uint64_t>(api.end_ns - api.start_ns, UINT32_MAX));
}

}  // namespace

LaunchJoin::Match LaunchJoin::make_match(const Entry& entry) {
  return {.api_start_ns = entry.api_start_ns,
          .api_end_ns = entry.api_start_ns + entry.api_duration_ns,
          .work_start_ns = entry.work_start_ns,
          .target = entry.target,
          .is_graph_node = entry.state == State::kNodes || entry.state == State::kApiAndNodes};
}

std::optional<LaunchJoin::Match> LaunchJoin::add(const Api& api, int64_t now_mono_ns) {
  loop_thread_.check();
  const uint32_t now_ms = to_ms(now_mono_ns);
  if (!find_room(now_ms)) {
    drops_.add(DropCause::kJoinLaunchesFull);
    return std::nullopt;
  }
  const size_t before = entries_.size();
  Entry& entry = entries_.get(api.correlation_id);
  const bool is_new = entries_.size() > before;
  // A second call of one id: the ids have wrapped, or CUPTI began anew.
  const bool is_stale = !is_new && entry.state != State::kWork && entry.state != State::kNodes;
  if (is_stale) entry = {};
  entry.api_start_ns = api.start_ns;
  entry.api_duration_ns = get_duration_ns(api);
  entry.touched_ms = now_ms;
  entry.expects_work = api.expects_work;
  if (is_new || is_stale) {
    entry.state = State::kApi;
    return std::nullopt;
  }
  if (entry.state == State::kNodes) {
    entry.state = State::kApiAndNodes;
    return std::nullopt;
  }
  const Match match = make_match(entry);
  entries_.erase(api.correlation_id);
  return match;
}

std::optional<LaunchJoin::Match> LaunchJoin::add(const Work& work, int64_t now_mono_ns) {
  loop_thread_.check();
  const uint32_t now_ms = to_ms(now_mono_ns);
  Entry* known = entries_.find(work.correlation_id);
  // Ids wrap: what was seen a minute ago has nothing to do with this.
  if (known != nullptr && now_ms - known->touched_ms > kMaxAgeNs / 1'000'000) {
    count_lost(*known, false);
    entries_.erase(work.correlation_id);
    known = nullptr;
  }
  if (known == nullptr) {
    if (!find_room(now_ms)) {
      drops_.add(DropCause::kJoinWorkFull);
      return std::nullopt;
    }
    entries_.get(work.correlation_id) = {
        .work_start_ns = work.start_ns,
        .touched_ms = now_ms,
        .target = work.target,
        .state = work.kind == WorkKind::kNode ? State::kNodes : State::kWork,
        .expects_work = work.kind != WorkKind::kSeveral};
    return std::nullopt;
  }
  const bool has_nodes = known->state == State::kNodes || known->state == State::kApiAndNodes;
  if (work.kind == WorkKind::kNode) {
    known->work_start_ns =
        has_nodes ? std::min(known->work_start_ns, work.start_ns) : work.start_ns;
    known->target = work.target;
    known->touched_ms = now_ms;
    const bool has_api = known->state != State::kNodes && known->state != State::kWork;
    known->state = has_api ? State::kApiAndNodes : State::kNodes;
    return std::nullopt;
  }
  if (known->state == State::kWork || has_nodes) return std::nullopt;  // more of the same call's
  if (work.kind == WorkKind::kSeveral) {
    known->state = State::kApiUsed;
    return std::nullopt;
  }
  known->work_start_ns = work.start_ns;
  known->target = work.target;
  const Match match = make_match(*known);
  entries_.erase(work.correlation_id);
  return match;
}

void LaunchJoin::count_lost(const Entry& entry, bool is_full) {
  switch (entry.state) {
    case State::kApi:
      if (!entry.expects_work) return;
      return drops_.add(is_full ? DropCause::kJoinLaunchesFull : DropCause::kJoinLaunchesExpired);
    case State::kWork:
      if (!entry.expects_work) return;
      [[fallthrough]];
    case State::kNodes:
      return drops_.add(is_full ? DropCause::kJoinWorkFull : DropCause::kJoinWorkExpired);
    case State::kApiUsed:
    case State::kApiAndNodes:
      return;
  }
}

std::vector<LaunchJoin::Match> LaunchJoin::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  std::vector<Match> settled;
  const int64_t periods = 1 + static_cast<int64_t>(entries_.bytes()) / kLookBytes;
  if (now_mono_ns - looked_mono_ns_ < periods * kLookPeriodNs) return settled;
  looked_mono_ns_ = now_mono_ns;
  const uint32_t now_ms = to_ms(now_mono_ns);
  entries_.erase_if([&](uint32_t, const Entry& entry) {
    const uint64_t age_ns = uint64_t{now_ms - entry.touched_ms} * 1'000'000;
    const bool is_done = entry.state == State::kApiAndNodes || entry.state == State::kApiUsed;
    if (age_ns < (is_done ? kGraphSettleNs : kMaxAgeNs)) return false;
    if (entry.state == State::kApiAndNodes) settled.push_back(make_match(entry));
    count_lost(entry, false);
    return true;
  });
  if (entries_.size() == 0) {  // gives its memory back
    if (account_ != nullptr) account_->give_back(entries_.bytes());
    entries_.clear();
  }
  return settled;
}

void LaunchJoin::forget_before(uint64_t mono_ns) {
  loop_thread_.check();
  entries_.erase_if([&](uint32_t, const Entry& entry) {
    const bool has_work = entry.state == State::kWork || entry.state == State::kNodes;
    if ((has_work ? entry.work_start_ns : entry.api_start_ns) >= mono_ns) return false;
    count_lost(entry, false);
    return true;
  });
}

bool LaunchJoin::find_room(uint32_t now_ms) {
  if (entries_.size() >= max_entries_) make_room(now_ms);
  const size_t growth_bytes = entries_.bytes_to_grow();
  if (growth_bytes == 0 || account_ == nullptr || account_->take(growth_bytes)) return true;
  make_room(now_ms);
  return entries_.bytes_to_grow() == 0;
}

// The oldest leave: whatever has waited for longer than a limit that is halved until half are gone.
void LaunchJoin::make_room(uint32_t now_ms) {
  const size_t half = entries_.size() / 2;
  for (uint32_t limit_ms = 32'768;; limit_ms /= 2) {
    entries_.erase_if([&](uint32_t, const Entry& entry) {
      if (now_ms - entry.touched_ms < limit_ms) return false;
      count_lost(entry, true);
      return true;
    });
    if (limit_ms == 0 || entries_.size() <= half) return;
  }
}

}  // namespace gpuperf
