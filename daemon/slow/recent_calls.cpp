#include "daemon/slow/recent_calls.h"

#include <cstdint>
#include <utility>

namespace gpuperf {
namespace {

constexpr ProcessKey kExited;

}  // namespace

RecentCalls::Rank RecentCalls::make_rank(const ProcessKey& holder, const Numbers& numbers) {
  return {holder == kExited ? SIZE_MAX : numbers.size(), UINT64_MAX - *numbers.begin(), holder};
}

template <typename Change>
void RecentCalls::change_held(const ProcessKey& holder, Change change) {
  Numbers& numbers = held_[holder];
  if (!numbers.empty()) ranks_.erase(make_rank(holder, numbers));
  change(numbers);
  if (numbers.empty()) {
    held_.erase(holder);
  } else {
    ranks_.insert(make_rank(holder, numbers));
  }
}

RecentCalls::Numbered RecentCalls::add(Numbered added, bool has_exited) {
  const ProcessKey holder = has_exited ? kExited : added.call->event.process;
  change_held(holder, [&](Numbers& numbers) { numbers.insert(added.number); });
  calls_.emplace(added.number, std::move(added.call));
  return calls_.size() > max_calls_ ? drop_one() : Numbered();
}

RecentCalls::Numbered RecentCalls::drop_one() {
  const ProcessKey holder = std::get<ProcessKey>(*ranks_.rbegin());
  Numbered dropped;
  change_held(holder, [&](Numbers& numbers) {
    dropped.number = *numbers.begin();
    numbers.erase(numbers.begin());
  });
  const auto entry = calls_.find(dropped.number);
  dropped.call = std::move(entry->second);
  calls_.erase(entry);
  return dropped;
}

void RecentCalls::apply(const ProcessExited& exited) {
  Numbers gone;
  change_held(exited.process, [&](Numbers& numbers) { gone.swap(numbers); });
  change_held(kExited, [&](Numbers& numbers) { numbers.merge(gone); });
}

void RecentCalls::replace(const CallPtr& known, const CallPtr& call) {
  for (auto& [number, kept] : calls_) {
    if (kept == known) kept = call;
  }
}

std::vector<RecentCalls::CallPtr> RecentCalls::list() const {
  std::vector<CallPtr> calls;
  calls.reserve(calls_.size());
  for (const auto& [number, call] : calls_) calls.push_back(call);
  return calls;
}

}  // namespace gpuperf
