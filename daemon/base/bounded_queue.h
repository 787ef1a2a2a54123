#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

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
      const std::lock_guard lock(mutex_);
      if (closed_ || values_.size() >= capacity_) return false;
      values_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  // Waits for room; false once closed.
  bool push(T&& value) {
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return closed_ || values_.size() < capacity_; });
      if (closed_) return false;
      values_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    return take_front();
  }

  // Waits for a value; nullopt once closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return closed_ || !values_.empty(); });
    return take_front();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
    room_.notify_all();
  }

 private:
  std::optional<T> take_front() {
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    room_.notify_one();
    return value;
  }

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable room_;
  std::deque<T> values_;  // guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

}  // namespace gpuperf
