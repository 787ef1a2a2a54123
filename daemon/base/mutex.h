#pragma once

#include <absl/base/thread_annotations.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace gpuperf {

// std::mutex with clang's thread-safety annotations, which that of libstdc++ lacks: a member marked
// ABSL_GUARDED_BY(mutex_), or a function marked ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_), is refused
// where the mutex is not held (tests/house/locks_test.py). Not absl::Mutex: the distribution builds
// it without ThreadSanitizer, which then takes every access under it for a race.
class ABSL_LOCKABLE Mutex {
 public:
  // Runs `wait` without the mutex, which the caller holds.
  template <typename Wait>
  void wait_unlocked(const Wait& wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    mutex_.unlock();
    wait();
    mutex_.lock();
  }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds the mutex until its end, but between `unlock` and `lock`.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }

 private:
  friend class ConditionVariable;
  std::unique_lock<std::mutex> lock_;
};

// Waits take no predicate: clang checks one apart from the function that holds the lock. They wake
// without a reason too, so they are called in a loop: while (!ready_) changed_.wait(lock);
class ConditionVariable {
 public:
  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  // False once `deadline` has passed.
  bool wait_until(MutexLock& lock, std::chrono::steady_clock::time_point deadline) {
    return condition_.wait_until(lock.lock_, deadline) == std::cv_status::no_timeout;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace gpuperf
