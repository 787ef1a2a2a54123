#include "daemon/slow/slow_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpuperf {
namespace {

// Heap order: the shortest call on top, and of equally long ones the newer, which gives way first.
bool is_worse(const std::shared_ptr<const SlowCall>& a, const std::shared_ptr<const SlowCall>& b) {
  if (a->event.duration_ns != b->event.duration_ns) {
    return a->event.duration_ns > b->event.duration_ns;
  }
  return a->id < b->id;
}

}  // namespace

SlowCalls::SlowCalls(const Limits& limits, DropCounters& drops)
    : limits_(limits), drops_(drops), last_id_(limits.last_id), recent_(limits.recent) {}

SlowCalls::OpenKey SlowCalls::make_key(const SlowCallEvent& event) {
  return {event.process, event.tid, event.function_id, event.start_mono_ns};
}

std::optional<SlowCall> SlowCalls::see_in_flight(const SlowCallEvent& event, int64_t now_mono_ns) {
  const auto entry = open_.find(make_key(event));
  if (entry == open_.end()) return std::nullopt;
  OpenCall& open = entry->second;
  open.seen_mono_ns = now_mono_ns;
  if (event.duration_ns >= 2 * open.named_age_ns) return std::nullopt;
  SlowCall call = *open.call;
  std::vector<WaitStacks> stacks;
  for (const Wait& wait : event.waits) {
    const auto& known = call.event.waits;
    const auto same = std::ranges::find(known, wait.start_mono_ns, &Wait::start_mono_ns);
    const auto index = static_cast<size_t>(same - known.begin());
    stacks.push_back(index < call.wait_stacks.size() ? call.wait_stacks[index] : WaitStacks());
  }
  call.event = event;
  call.wait_stacks = std::move(stacks);
  return call;
}

void SlowCalls::refresh(SlowCall call) {
  const auto entry = open_.find(make_key(call.event));
  if (entry != open_.end()) entry->second.call = std::make_shared<const SlowCall>(std::move(call));
}

SlowCalls::Kept SlowCalls::add(SlowCall call, int64_t now_mono_ns) {
  const OpenKey key = make_key(call.event);
  const auto entry = open_.find(key);
  const bool in_flight = call.event.in_flight.has_value();
  if (in_flight && entry == open_.end() && open_.size() >= limits_.max_open) {
    drops_.add(DropCause::kInFlightFull);
    return {};
  }
  const bool is_news = !in_flight || entry == open_.end();
  call.id = entry == open_.end() ? ++last_id_ : entry->second.call->id;
  const uint64_t age_ns = call.event.duration_ns;
  auto kept = std::make_shared<const SlowCall>(std::move(call));
  if (in_flight) {
    open_[key] = {.call = kept, .added = kept, .named_age_ns = age_ns, .seen_mono_ns = now_mono_ns};
    return {kept, is_news};
  }
  if (entry != open_.end()) open_.erase(entry);
  keep(kept);
  return {kept, is_news};
}

void SlowCalls::keep(const CallPtr& call) {
  ++kept_;
  keep_worst(call);
  const ProcessKey& process = call->event.process;
  const RecentCalls::Numbered dropped = recent_.add({kept_, call}, exited_.contains(process));
  if (dropped.call == nullptr) return;
  const auto list = worst_.find({dropped.call->event.process, dropped.call->event.function_id});
  const bool was_last = list != worst_.end() && list->second.last_kept == dropped.number;
  if (was_last && list->second.exited) erase_list(list);
}

std::vector<std::shared_ptr<const SlowCall>> SlowCalls::collect_gone(int64_t now_mono_ns) {
  std::vector<CallPtr> gone;
  for (auto entry = open_.begin(); entry != open_.end();) {
    if (now_mono_ns - entry->second.seen_mono_ns < kGoneAfterNs) {
      ++entry;
      continue;
    }
    auto call = std::make_shared<SlowCall>(*entry->second.call);
    call->is_gone = true;
    keep(call);
    gone.push_back(std::move(call));
    entry = open_.erase(entry);
  }
  return gone;
}

std::shared_ptr<const SlowCall> SlowCalls::mark_unstored(
    const std::shared_ptr<const SlowCall>& call) {
  const auto open = open_.find(make_key(call->event));
  const bool is_open = open != open_.end() && open->second.added == call;
  auto unstored = std::make_shared<SlowCall>(is_open ? *open->second.call : *call);
  unstored->is_stored = false;
  CallPtr kept = unstored;
  if (is_open) open->second.call = open->second.added = kept;
  recent_.replace(call, kept);
  const auto list = worst_.find({call->event.process, call->event.function_id});
  if (list != worst_.end()) std::ranges::replace(list->second.calls, call, kept);
  return kept;
}

SlowCalls::WorstList& SlowCalls::get_list(const ListKey& key) {
  const auto [entry, inserted] = worst_.try_emplace(key);
  WorstList& list = entry->second;
  if (inserted) {
    list.arrival = arrivals_.insert(arrivals_.end(), key);
    // Naming its stack may have taken longer than the rest of the process's life.
    list.exited = exited_.contains(key.first);
  } else {
    arrivals_.splice(arrivals_.end(), arrivals_, list.arrival);
  }
  return list;
}

void SlowCalls::keep_worst(const CallPtr& call) {
  const size_t most = std::min(limits_.worst_per_function, limits_.max_worst_calls);
  if (most == 0) return;
  WorstList& list = get_list({call->event.process, call->event.function_id});
  list.last_kept = kept_;
  if (list.calls.size() < most) {
    // The list just touched is the freshest and still below the bound, so the stalest is another.
    while (worst_calls_ >= limits_.max_worst_calls) {
      const auto stalest = worst_.find(arrivals_.front());
      drops_.add(DropCause::kSlowListsFull, stalest->second.calls.size());
      erase_list(stalest);
    }
    list.calls.push_back(call);
    ++worst_calls_;
  } else if (is_worse(call, list.calls.front())) {
    std::ranges::pop_heap(list.calls, is_worse);
    list.calls.back() = call;
  }
  std::ranges::push_heap(list.calls, is_worse);
}

SlowCalls::WorstLists::iterator SlowCalls::erase_list(WorstLists::iterator entry) {
  worst_calls_ -= entry->second.calls.size();
  arrivals_.erase(entry->second.arrival);
  return worst_.erase(entry);
}

void SlowCalls::apply(const ProcessExited& exited) {
  exited_.add(exited.process);
  recent_.apply(exited);
  auto entry = worst_.lower_bound({exited.process, 0});
  while (entry != worst_.end() && entry->first.first == exited.process) {
    entry->second.exited = true;
    const bool is_recent = recent_.contains(entry->second.last_kept);
    entry = is_recent ? std::next(entry) : erase_list(entry);
  }
}

void SlowCalls::fill(Snapshot& snapshot) const {
  snapshot.last_slow_call_id = last_id_;
  snapshot.self.add(Bound::kWorstCalls, worst_calls_, limits_.max_worst_calls);
  std::vector<CallPtr>& calls = snapshot.slow_calls;
  calls = recent_.list();
  for (const auto& [key, list] : worst_) {
    calls.insert(calls.end(), list.calls.begin(), list.calls.end());
  }
  for (const auto& [key, open] : open_) calls.push_back(open.call);
  std::ranges::sort(calls, {}, [](const CallPtr& call) { return call->id; });
  // A recent call may be among the worst too: the same pointer.
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
}

}  // namespace gpuperf
