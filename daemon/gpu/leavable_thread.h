#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "daemon/base/mutex.h"

namespace gpuperf {

// A thread that calls what may never come back: stopping waits for a while, then leaves it behind.
//
// What the thread uses must be owned by its function (shared, or values): whoever started it may be
// gone when it wakes. A thread left behind ends at its next look at the signal, or with the
// process.
class LeavableThread {
 public:
  class Signal {
   public:
    bool is_stopping() const {
      const MutexLock lock(mutex_);
      return stopping_;
    }
    // False: the thread is to end. Returns early after `wake` too.
    bool wait_for(std::chrono::nanoseconds duration) {
      const auto deadline = std::chrono::steady_clock::now() + duration;
      MutexLock lock(mutex_);
      while (!stopping_ && !woken_ && changed_.wait_until(lock, deadline)) continue;
      woken_ = false;
      return !stopping_;
    }
    void wake() {
      const MutexLock lock(mutex_);
      woken_ = true;
      changed_.notify_all();
    }

   private:
    friend class LeavableThread;
    mutable Mutex mutex_;
    ConditionVariable changed_;
    bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
    bool woken_ ABSL_GUARDED_BY(mutex_) = false;
    bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  };

  using Run = std::function<void(const std::shared_ptr<Signal>&)>;
  explicit LeavableThread(Run run)
      : signal_(std::make_shared<Signal>()),
        thread_([signal = signal_, run = std::move(run)]() mutable {
          run(signal);
          run = nullptr;  // what it owns goes before anybody is told that it ended
          const MutexLock lock(signal->mutex_);
          signal->ended_ = true;
          signal->changed_.notify_all();
        }) {}
  ~LeavableThread() { (void)stop(std::chrono::seconds(0)); }
  LeavableThread(const LeavableThread&) = delete;
  LeavableThread& operator=(const LeavableThread&) = delete;

  void wake() { signal_->wake(); }

  // False: it did not end in time and was left behind. Later calls do nothing.
  bool stop(std::chrono::nanoseconds patience) {
    if (!thread_.joinable()) return true;
    {
      const auto deadline = std::chrono::steady_clock::now() + patience;
      MutexLock lock(signal_->mutex_);
      signal_->stopping_ = true;
      signal_->changed_.notify_all();
      while (!signal_->ended_ && signal_->changed_.wait_until(lock, deadline)) continue;
      if (!signal_->ended_) {
        thread_.detach();
        return false;
      }
    }
    thread_.join();
    return true;
  }

 private:
  const std::shared_ptr<Signal> signal_;
  std::thread thread_;
};

}  // namespace gpuperf
