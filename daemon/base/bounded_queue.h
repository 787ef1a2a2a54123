#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "daemon/base/mutex.h"

namespace gpuperf {

// Hands values from any thread to one consumer thread.
//
// Bounds: at most `capacity` values wait; a push beyond that is refused and leaves the value with
// the caller, who keeps it or counts the drop with its own site and reason. Never blocks a
// producer, but one that asks to wait for room. `close` wakes the consumer for good; what already
// waits is still handed out.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  bool try_push(T&& value) {
    {
      const MutexLock lock(mutex_);
      if (closed_ || values_.size() >= capacity_) return false;
      append(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  // Waits for room; false once closed.
  bool push(T&& value) {
    {
      MutexLock lock(mutex_);
      while (!closed_ && values_.size() >= capacity_) room_.wait(lock);
      if (closed_) return false;
      append(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> try_pop() {
    const MutexLock lock(mutex_);
    return take_front();
  }

  // Waits for a value; nullopt once closed and empty.
  std::optional<T> pop() {
    MutexLock lock(mutex_);
    while (!closed_ && values_.empty()) ready_.wait(lock);
    return take_front();
  }

  size_t capacity() const { return capacity_; }
  // How many waited at most since the last call.
  size_t take_highest() {
    const MutexLock lock(mutex_);
    return std::exchange(highest_, values_.size());
  }

  void close() { close_with(std::nullopt); }

  // The producer's last value has a place beyond the bound: nobody is left to keep it.
  void close_with(std::optional<T> last) {
    {
      const MutexLock lock(mutex_);
      if (last) values_.push_back(*std::move(last));
      closed_ = true;
    }
    ready_.notify_all();
    room_.notify_all();
  }

 private:
  void append(T&& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    values_.push_back(std::move(value));
    highest_ = std::max(highest_, values_.size());
  }

  std::optional<T> take_front() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    room_.notify_one();
    return value;
  }

  const size_t capacity_;
  Mutex mutex_;
  ConditionVariable ready_;
  ConditionVariable room_;
  std::deque<T> values_ ABSL_GUARDED_BY(mutex_);
  size_t highest_ ABSL_GUARDED_BY(mutex_) = 0;  // of values_ since it was last asked for
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuperf
