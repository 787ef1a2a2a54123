#pragma once

#include <google/protobuf/message.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "daemon/base/high_mark.h"
#include "daemon/base/result.h"
#include "daemon/model/drops.h"

namespace gpuperf {

// How many bytes of answers may wait in gRPC for callers to take them. A caller sets the pace at
// which its answers are taken, and gRPC 1.51 counts them against no quota (decision 0023).
//
// Thread: any. Bounds: `max_bytes`, and those of the budget that it shares with others. Beyond them
// RESOURCE_EXHAUSTED, counted as DropCause::kApiAnswersFull.
class AnswerBudget {
 public:
  // Held until gRPC is done with the answer. The budget and `shared` must outlive it.
  using Hold = std::shared_ptr<void>;

  // `shared` may be null.
  AnswerBudget(size_t max_bytes, AnswerBudget* shared, DropCounters& drops)
      : max_bytes_(max_bytes), shared_(shared), drops_(drops) {}
  AnswerBudget(const AnswerBudget&) = delete;
  AnswerBudget& operator=(const AnswerBudget&) = delete;

  // Counts the answer; where there is no room for it, empties it.
  Status hold(google::protobuf::Message& answer, Hold& hold);
  // How many bytes were held at most since the last call.
  uint64_t take_highest() { return mark_.take(); }
  size_t max_bytes() const { return max_bytes_; }

 private:
  bool take(size_t bytes);
  void give_back(size_t bytes);

  const size_t max_bytes_;
  AnswerBudget* const shared_;
  DropCounters& drops_;
  std::atomic<size_t> held_bytes_ = 0;
  HighMark mark_;  // of held_bytes_
};

}  // namespace gpuperf
