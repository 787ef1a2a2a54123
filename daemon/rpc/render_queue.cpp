#include "daemon/rpc/render_queue.h"

#include <utility>

#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

// The largest captures, on a busy machine.
constexpr std::chrono::seconds kWorkLimit{300};

}  // namespace

RenderQueue::RenderQueue() : thread_([this] { run(); }) {}

RenderQueue::~RenderQueue() {
  std::deque<std::function<void()>> forgotten;  // destroyed without the lock: places come back
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    forgotten.swap(jobs_);
    changed_.notify_all();
  }
  thread_.join();
}

Result<RenderQueue::Place> RenderQueue::take_place(bool is_root) {
  const MutexLock lock(mutex_);
  if (taken_ >= (is_root ? kPlaces : kPlaces - kKeptForRoot)) {
    return absl::ResourceExhaustedError(
        "too many captures are being prepared or sent; try again in a moment");
  }
  ++taken_;
  return Place(nullptr, [this](void*) { give_back(); });
}

void RenderQueue::give_back() {
  const MutexLock lock(mutex_);
  --taken_;
}

void RenderQueue::post(std::function<void()> job) {
  const MutexLock lock(mutex_);
  if (stopping_) return;
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void RenderQueue::run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stopping_ && jobs_.empty()) changed_.wait(lock);
    if (stopping_) return;
    {
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      const Work work("render", kWorkLimit);
      job();
    }  // what it held goes before the next begins
    lock.lock();
  }
}

}  // namespace gpuperf
