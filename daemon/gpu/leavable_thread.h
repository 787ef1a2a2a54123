#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

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
      const std::lock_guard lock(mutex_);
      return stopping_;
    }
    // False: the thread is to end. Returns early after `wake` too.
    bool wait_for(std::chrono::nanoseconds duration) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, duration, [this] { return stopping_ || woken_; });
      woken_ = false;
      return !stopping_;
    }
    void wake() {
      const std::lock_guard lock(mutex_);
      woken_ = true;
      changed_.notify_all();
    }

   private:
    friend class LeavableThread;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    bool stopping_ = false;
    bool woken_ = false;
    bool ended_ = false;
  };

  using Run = std::function<void(const std::shared_ptr<Signal>&)>;
  explicit LeavableThread(Run run)
      : signal_(std::make_shared<Signal>()),
        thread_([signal = signal_, run = std::move(run)]() mutable {
          run(signal);
          run = nullptr;  // what it owns goes before anybody is told that it ended
          const std::lock_guard lock(signal->mutex_);
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
      std::unique_lock lock(signal_->mutex_);
      signal_->stopping_ = true;
      signal_->changed_.notify_all();
      if (!signal_->changed_.wait_for(lock, patience, [this] { return signal_->ended_; })) {
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
