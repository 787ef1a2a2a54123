#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace gpuperf {

// Keeps values until their bytes together pass a bound; the one used least recently leaves first.
//
// Thread: one. A value larger than the whole bound is not kept: `put` says so. `on_left` hears of
// each key whose value leaves without another taking its place, and must not come back here. With a
// `Hash`, which pays from some thousand entries on, keys need no order.
template <typename Key, typename Value, typename Hash = void>
class ByteLru {
 public:
  using OnLeft = std::function<void(const Key&)>;
  explicit ByteLru(size_t capacity_bytes, OnLeft on_left = nullptr)
      : capacity_bytes_(capacity_bytes), on_left_(std::move(on_left)) {}

  // Null when it is not kept. Valid until the next `put`.
  Value* find(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    order_.splice(order_.end(), order_, found->second.place);
    return &found->second.value;
  }

  // Replaces what is kept under `key`.
  bool put(const Key& key, Value value, size_t bytes) {
    erase(key);
    if (bytes > capacity_bytes_) {
      tell_left(key);
      return false;
    }
    while (bytes_ > capacity_bytes_ - bytes) drop_oldest();
    const auto place = order_.insert(order_.end(), key);
    entries_.emplace(key, Entry{.value = std::move(value), .bytes = bytes, .place = place});
    bytes_ += bytes;
    return true;
  }

  // Those of which `leaves(key, value)` is true leave.
  template <typename Predicate>
  void erase_if(const Predicate& leaves) {
    for (auto next = order_.begin(); next != order_.end();) {
      const Key key = *next++;
      if (!leaves(key, entries_.find(key)->second.value)) continue;
      erase(key);
      tell_left(key);
    }
  }

  bool empty() const { return entries_.empty(); }
  // There is one.
  void drop_oldest() {
    const Key oldest = order_.front();
    erase(oldest);
    tell_left(oldest);
  }

  void clear() {
    entries_.clear();
    order_.clear();
    bytes_ = 0;
  }

  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Value value;
    size_t bytes = 0;
    typename std::list<Key>::iterator place;
  };

  void erase(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    bytes_ -= found->second.bytes;
    order_.erase(found->second.place);
    entries_.erase(found);
  }

  void tell_left(const Key& key) {
    if (on_left_) on_left_(key);
  }

  // Not named where Hash is void, for which no table can be.
  template <typename H>
  struct Hashed {
    using Type = std::unordered_map<Key, Entry, H>;
  };
  struct Ordered {
    using Type = std::map<Key, Entry>;
  };
  using Entries = typename std::conditional_t<std::is_void_v<Hash>, Ordered, Hashed<Hash>>::Type;

  const size_t capacity_bytes_;
  const OnLeft on_left_;
  Entries entries_;
  std::list<Key> order_;  // used least recently first
  size_t bytes_ = 0;
};

}  // namespace gpuperf
