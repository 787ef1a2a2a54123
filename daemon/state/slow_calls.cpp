#include "daemon/state/slow_calls.h"

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

SlowCalls::SlowCalls(const Limits& limits, DropCounters& drops) : limits_(limits), drops_(drops) {}

std::shared_ptr<const SlowCall> SlowCalls::add(SlowCall call) {
  if (call.id == 0) call.id = last_id_ + 1;
  last_id_ = std::max(last_id_, call.id);
  auto kept = std::make_shared<const SlowCall>(std::move(call));
  keep_worst(kept);
  recent_.push_back(kept);
  if (recent_.size() > limits_.recent) drop_oldest_recent();
  return kept;
}

void SlowCalls::drop_oldest_recent() {
  const CallPtr oldest = recent_.front();
  recent_.pop_front();
  const auto entry = worst_.find({oldest->event.process, oldest->event.function_id});
  if (entry != worst_.end() && entry->second.exited && entry->second.last_id == oldest->id) {
    erase_list(entry);
  }
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
  list.last_id = call->id;
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
  const uint64_t oldest_recent_id = recent_.empty() ? last_id_ + 1 : recent_.front()->id;
  auto entry = worst_.lower_bound({exited.process, 0});
  while (entry != worst_.end() && entry->first.first == exited.process) {
    entry->second.exited = true;
    const bool is_recent = entry->second.last_id >= oldest_recent_id;
    entry = is_recent ? std::next(entry) : erase_list(entry);
  }
}

void SlowCalls::fill(Snapshot& snapshot) const {
  std::vector<CallPtr>& calls = snapshot.slow_calls;
  calls.assign(recent_.begin(), recent_.end());
  for (const auto& [key, list] : worst_) {
    calls.insert(calls.end(), list.calls.begin(), list.calls.end());
  }
  std::ranges::sort(calls, {}, [](const CallPtr& call) { return call->id; });
  // A recent call may be among the worst too: the same pointer.
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
}

}  // namespace gpuperf
