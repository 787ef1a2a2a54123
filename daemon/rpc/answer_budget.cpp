#include "daemon/rpc/answer_budget.h"

namespace gpuperf {

Status AnswerBudget::hold(google::protobuf::Message& answer, Hold& hold) {
  const size_t bytes = answer.ByteSizeLong();
  if (take(bytes)) {
    hold = Hold(nullptr, [this, bytes](void*) { give_back(bytes); });
    return absl::OkStatus();
  }
  // Clear() would keep what the rows have allocated.
  const std::unique_ptr<google::protobuf::Message> empty(answer.New());
  answer.GetReflection()->Swap(&answer, empty.get());
  drops_.add(DropCause::kApiAnswersFull);
  return absl::ResourceExhaustedError(
      "too many answers wait for their callers to take them; take or cancel some of them");
}

bool AnswerBudget::take(size_t bytes) {
  const size_t held_bytes = held_bytes_.fetch_add(bytes) + bytes;
  if (held_bytes <= max_bytes_ && (shared_ == nullptr || shared_->take(bytes))) {
    mark_.note(held_bytes);
    return true;
  }
  held_bytes_ -= bytes;
  return false;
}

void AnswerBudget::give_back(size_t bytes) {
  mark_.note(held_bytes_ -= bytes);
  if (shared_ != nullptr) shared_->give_back(bytes);
}

}  // namespace gpuperf
