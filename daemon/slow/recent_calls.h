#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "daemon/model/function.h"
#include "daemon/model/snapshot.h"

namespace gpuperf {

// The slow calls kept last, each under a number that rises.
//
// Thread: one. Bounds: `max_calls`. Beyond them calls of exited processes leave first, and then, as
// in the store (Retention), calls of the process that has most, so that none takes the place of
// others: of those the oldest.
class RecentCalls {
 public:
  using CallPtr = std::shared_ptr<const SlowCall>;
  struct Numbered {
    uint64_t number = 0;
    CallPtr call;
  };

  explicit RecentCalls(size_t max_calls) : max_calls_(max_calls) {}

  // What leaves for it; a null call where nothing does.
  Numbered add(Numbered added, bool has_exited);
  void apply(const ProcessExited& exited);
  void replace(const CallPtr& known, const CallPtr& call);

  bool contains(uint64_t number) const { return calls_.contains(number); }
  std::vector<CallPtr> list() const;

 private:
  using Numbers = std::set<uint64_t>;
  // Who has most comes last, of those who have equally many whose oldest is older: how many, the
  // oldest's number counted down, whose.
  using Rank = std::tuple<size_t, uint64_t, ProcessKey>;
  static Rank make_rank(const ProcessKey& holder, const Numbers& numbers);

  // `change` is given the numbers of the holder's calls.
  template <typename Change>
  void change_held(const ProcessKey& holder, Change change);
  Numbered drop_one();

  const size_t max_calls_;
  std::map<uint64_t, CallPtr> calls_;
  std::map<ProcessKey, Numbers> held_;  // those of exited processes together, as of pid 0
  std::set<Rank> ranks_;                // of held_
};

}  // namespace gpuperf
