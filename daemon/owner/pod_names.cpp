#include "daemon/owner/pod_names.h"

#include <algorithm>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/work_watch.h"

namespace gpuperf {

PodNames::PodNames(Ask ask, DropCounters& drops, Options options)
    : ask_(std::move(ask)), drops_(drops), options_(options), thread_([this] { run(); }) {}

PodNames::~PodNames() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

PodNames::State PodNames::name(Owner& owner) {
  if (owner.pod.empty() || owner.container.empty()) return State::kUnnamed;
  const MutexLock lock(mutex_);
  const auto known = entries_.find(owner.container);
  if (known != entries_.end()) {
    if (!known->second.answered) return State::kAsked;
    if (!known->second.name) return State::kUnnamed;
    owner.pod = known->second.name->pod;
    owner.pod_namespace = known->second.name->pod_namespace;
    return State::kNamed;
  }
  if (std::chrono::steady_clock::now() < quiet_until_) return State::kUnnamed;
  if (waiting_.size() >= options_.max_names) {
    drops_.add(DropCause::kPodNamesFull);
    return State::kUnnamed;
  }
  if (entries_.size() >= options_.max_names) forget_oldest();
  entries_.emplace(owner.container, Entry());
  order_.push_back(owner.container);
  waiting_.push_back(owner.container);
  wake_.notify_one();
  return State::kAsked;
}

PodNames::State PodNames::name_within(Owner& owner, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kBetweenLooks{5};
  const auto deadline = std::chrono::steady_clock::now() + limit;
  State state = name(owner);
  while (state == State::kAsked && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kBetweenLooks);
    state = name(owner);
  }
  return state;
}

// An answered one; there is one, because fewer than max_names wait.
void PodNames::forget_oldest() {
  const auto oldest = std::ranges::find_if(
      order_, [this](const std::string& container) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return entries_.at(container).answered;
      });
  if (oldest == order_.end()) return;
  entries_.erase(*oldest);
  order_.erase(oldest);
}

void PodNames::run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && waiting_.empty()) wake_.wait(lock);
    if (stopping_) return;
    const std::string container = waiting_.front();
    lock.unlock();
    std::optional<Work> work(std::in_place, "pods");
    const Result<std::optional<PodName>> answer = ask_(container);
    work.reset();
    lock.lock();
    if (answer.ok()) {
      entries_[container] = {.answered = true, .name = *answer};
      waiting_.pop_front();
      continue;
    }
    // Those that wait are asked about anew when they are met again after the pause.
    for (const std::string& waited : std::exchange(waiting_, {})) {
      entries_.erase(waited);
      std::erase(order_, waited);
    }
    quiet_until_ = std::chrono::steady_clock::now() + options_.retry_after;
    if (absl::IsNotFound(answer.status())) continue;  // no Kubernetes here, or not to be seen
    log_warn("pod name not found",
             {{"container", container}, {"error", std::string(answer.status().message())}});
  }
}

}  // namespace gpuperf
