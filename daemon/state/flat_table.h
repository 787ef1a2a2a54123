#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpuperf {

// A hash table of small values under whole numbers: one array, no allocation per entry, entries
// removed without tombstones. For tables that see every record.
//
// Thread: one. Pointers to values are good until the next insert or erase.
// Bounds: the caller's; the array is at most twice as large as what was ever in it at once, and is
// given back by `clear`. The order of entries depends on the table's address, so that nobody
// outside can choose keys that fall together.
// `kRunBits`: keys that differ in so many low bits only lie side by side: for keys that come in
// order, where a large table would cost a miss of the cache each.
template <typename Key, typename Value, int kRunBits = 0>
class FlatTable {
 public:
  size_t size() const { return size_; }
  size_t bytes() const { return slots_.size() * sizeof(Slot); }
  // How many more it has once one more key is in it.
  size_t bytes_to_grow() const {
    if (2 * (size_ + 1) <= slots_.size()) return 0;
    return (slots_.empty() ? kSmallest : slots_.size()) * sizeof(Slot);
  }

  // Begins to load what `find` will look at: worth it some entries ahead, in a large table.
  void prefetch(Key key) const {
    if (size_ > 0) __builtin_prefetch(&slots_[get_home(key)]);
  }

  Value* find(Key key) {
    if (size_ == 0) return nullptr;
    for (size_t i = get_home(key);; i = get_next(i)) {
      if (!slots_[i].used) return nullptr;
      if (slots_[i].key == key) return &slots_[i].value;
    }
  }

  // The value under the key; a new one where there was none.
  Value& get(Key key) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    size_t i = get_home(key);
    for (; slots_[i].used; i = get_next(i)) {
      if (slots_[i].key == key) return slots_[i].value;
    }
    slots_[i] = {.key = key, .used = true, .value = {}};
    ++size_;
    return slots_[i].value;
  }

  void erase(Key key) {
    if (size_ == 0) return;
    size_t i = get_home(key);
    for (; slots_[i].used; i = get_next(i)) {
      if (slots_[i].key == key) return take_out(i);
    }
  }

  // Takes out what `leaves(key, value)` says, once for each entry or more often.
  template <typename Leaves>
  void erase_if(Leaves leaves) {
    for (size_t i = 0; i < slots_.size() && size_ > 0;) {
      if (slots_[i].used && leaves(slots_[i].key, slots_[i].value)) {
        take_out(i);  // another entry may have moved here
      } else {
        ++i;
      }
    }
  }

  void clear() {
    slots_ = std::vector<Slot>();  // "= {}" would keep the memory
    size_ = 0;
  }

 private:
  struct Slot {
    Key key{};
    bool used = false;
    Value value{};
  };
  static constexpr size_t kSmallest = size_t{16} << kRunBits;

  size_t get_home(Key key) const {
    const uint64_t odd = 0x9e3779b97f4a7c15 ^ (reinterpret_cast<uintptr_t>(this) << 1);
    const int run_bits = std::bit_width(slots_.size() - 1) - kRunBits;
    const uint64_t run = ((static_cast<uint64_t>(key) >> kRunBits) * odd) >> (64 - run_bits);
    return run << kRunBits | (key & ((Key{1} << kRunBits) - 1));
  }
  size_t get_next(size_t i) const { return (i + 1) & (slots_.size() - 1); }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? kSmallest : 2 * slots_.size());
    std::swap(old, slots_);
    size_ = 0;
    for (Slot& slot : old) {
      if (slot.used) get(slot.key) = std::move(slot.value);
    }
  }

  // Moves later entries of the run back, so that none is cut off from its home.
  void take_out(size_t hole) {
    for (size_t i = get_next(hole); slots_[i].used; i = get_next(i)) {
      const size_t distance_home = (i - get_home(slots_[i].key)) & (slots_.size() - 1);
      const size_t distance_hole = (i - hole) & (slots_.size() - 1);
      if (distance_home < distance_hole) continue;
      slots_[hole] = std::move(slots_[i]);
      hole = i;
    }
    slots_[hole].used = false;
    --size_;
  }

  std::vector<Slot> slots_;  // a power of two of them, or none
  size_t size_ = 0;
};

}  // namespace gpuperf
