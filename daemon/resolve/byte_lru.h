#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace gpuperf {

// Keeps values until their bytes together pass a bound; the one used least recently leaves first.
//
// Thread: one. A value larger than the whole bound is not kept: `put` says so.
template <typename Key, typename Value>
class ByteLru {
 public:
  explicit ByteLru(size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

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
    if (bytes > capacity_bytes_) return false;
    while (bytes_ > capacity_bytes_ - bytes) erase(Key(order_.front()));
    const auto place = order_.insert(order_.end(), key);
    entries_.emplace(key, Entry{.value = std::move(value), .bytes = bytes, .place = place});
    bytes_ += bytes;
    return true;
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

  const size_t capacity_bytes_;
  std::map<Key, Entry> entries_;
  std::list<Key> order_;  // used least recently first
  size_t bytes_ = 0;
};

}  // namespace gpuperf
