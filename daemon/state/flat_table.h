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
// Entries lie in the order of their homes (Robin Hood hashing), so that looking for one, and moving
// others back behind one that leaves, ends at the first that is at home.
//
// Thread: one. Pointers to values are good until the next insert or erase.
// Bounds: the caller's; the array is at most twice as large as what was ever in it at once, and is
// given back by `clear`. The order of entries depends on the table's address, so that nobody
// outside can choose keys that fall together.
// `kRunBits`: not 0 for keys that come in order, where a large table would cost a miss of the cache
// each. They lie in their order, until some do not fit there: from then on only those that differ
// in so many low bits lie side by side.
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
    const size_t i = find_slot(key);
    return i == kNowhere ? nullptr : &slots_[i].value;
  }

  // The value under the key; a new one where there was none.
  Value& get(Key key) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    size_t i = get_home(key);
    uint32_t steps = 1;
    for (; slots_[i].steps >= steps; i = get_next(i), ++steps) {
      if (slots_[i].key == key) return slots_[i].value;
    }
    if (is_in_order_ && (steps > kMaxSteps || !has_way(i))) {
      is_in_order_ = false;
      move_to(slots_.size());
      return get(key);
    }
    if (slots_[i].steps != 0) make_way(i);
    slots_[i] = {.key = key, .steps = steps, .value = {}};
    ++size_;
    return slots_[i].value;
  }

  void erase(Key key) {
    const size_t i = find_slot(key);
    if (i != kNowhere) take_out(i);
  }

  // Takes out what `leaves(key, value)` says, once for each entry or more often.
  template <typename Leaves>
  void erase_if(Leaves leaves) {
    for (size_t i = 0; i < slots_.size() && size_ > 0;) {
      if (slots_[i].steps != 0 && leaves(slots_[i].key, slots_[i].value)) {
        take_out(i);  // another entry may have moved here
      } else {
        ++i;
      }
    }
  }

  // `visit(key, value)` for each, in no order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.steps != 0) visit(slot.key, slot.value);
    }
  }

  void clear() {
    slots_ = std::vector<Slot>();  // "= {}" would keep the memory
    size_ = 0;
    is_in_order_ = kRunBits > 0;
  }

 private:
  struct Slot {
    Key key{};
    uint32_t steps = 0;  // from its home, which is 1; 0 = empty
    Value value{};
  };
  static constexpr size_t kNowhere = SIZE_MAX;
  static constexpr uint32_t kMaxSteps = 64;  // of keys in order: 2.5 KB of entries of 40 bytes
  static constexpr size_t kSmallest = size_t{16} << kRunBits;

  size_t get_home(Key key) const {
    if (is_in_order_) return static_cast<size_t>(key) & (slots_.size() - 1);
    const uint64_t odd = 0x9e3779b97f4a7c15 ^ (reinterpret_cast<uintptr_t>(this) << 1);
    const int run_bits = std::bit_width(slots_.size() - 1) - kRunBits;
    const uint64_t run = ((static_cast<uint64_t>(key) >> kRunBits) * odd) >> (64 - run_bits);
    return run << kRunBits | (key & ((Key{1} << kRunBits) - 1));
  }
  size_t get_next(size_t i) const { return (i + 1) & (slots_.size() - 1); }

  size_t find_slot(Key key) const {
    if (size_ == 0) return kNowhere;
    size_t i = get_home(key);
    for (uint32_t steps = 1; slots_[i].steps >= steps; i = get_next(i), ++steps) {
      if (slots_[i].key == key) return i;
    }
    return kNowhere;
  }

  // Whether an empty slot is near.
  bool has_way(size_t place) const {
    for (uint32_t steps = 0; steps < kMaxSteps; ++steps, place = get_next(place)) {
      if (slots_[place].steps == 0) return true;
    }
    return false;
  }

  // Moves the entry at `place` and those behind it, up to the first empty slot, one further.
  void make_way(size_t place) {
    Slot moved = std::move(slots_[place]);
    for (size_t i = place; moved.steps != 0;) {
      i = get_next(i);
      ++moved.steps;
      std::swap(moved, slots_[i]);
    }
  }

  void grow() { move_to(slots_.empty() ? kSmallest : 2 * slots_.size()); }

  void move_to(size_t slots) {
    std::vector<Slot> old(slots);
    std::swap(old, slots_);
    size_ = 0;
    for (Slot& slot : old) {
      if (slot.steps != 0) get(slot.key) = std::move(slot.value);
    }
  }

  // Moves those behind it that are not at home one back.
  void take_out(size_t hole) {
    for (size_t i = get_next(hole); slots_[i].steps > 1; hole = i, i = get_next(i)) {
      slots_[hole] = std::move(slots_[i]);
      --slots_[hole].steps;
    }
    slots_[hole].steps = 0;
    --size_;
  }

  std::vector<Slot> slots_;  // a power of two of them, or none
  size_t size_ = 0;
  bool is_in_order_ = kRunBits > 0;
};

}  // namespace gpuperf
