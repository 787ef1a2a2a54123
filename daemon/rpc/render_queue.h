#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "daemon/base/mutex.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Works on captures, one job after the other: a job may take seconds and hundreds of megabytes.
//
// Thread: one of its own, where jobs run; the rest on any.
// Bounds: kPlaces jobs at once, those included whose result is still being sent; the last
// kKeptForRoot places are root's. Beyond them RESOURCE_EXHAUSTED. Once it is stopped, jobs that
// have not begun are forgotten without being run.
class RenderQueue {
 public:
  static constexpr size_t kPlaces = 8;
  static constexpr size_t kKeptForRoot = 2;
  // Held for as long as a job, or what it made, is there.
  using Place = std::shared_ptr<void>;

  RenderQueue();
  ~RenderQueue();  // waits for the job that runs
  RenderQueue(const RenderQueue&) = delete;
  RenderQueue& operator=(const RenderQueue&) = delete;

  Result<Place> take_place(bool is_root);
  void post(std::function<void()> job);

 private:
  void run();
  void give_back();

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpuperf
