#pragma once

// Assigns ids to recurring values, so that each value is sent once. Injector's thread.
//
// Ids count up from 1; 0 = the table is full. Bounds: `kMax` values, found by content in a hash
// table twice that size. Memory is static and untouched until used.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "injector/session_abi.h"

namespace gpuperf::injector {

// FNV-1a.
inline uint32_t hash_bytes(const void* bytes, size_t count) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < count; ++i) {
    hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * 16777619u;
  }
  return hash;
}

// The same word by word, for values made of 32-bit words.
inline uint32_t hash_words(const void* words, size_t count_bytes) {
  uint32_t hash = 2166136261u;
  for (size_t at = 0; at < count_bytes; at += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, static_cast<const char*>(words) + at, sizeof(word));
    hash = (hash ^ word) * 16777619u;
    hash ^= hash >> 15;
  }
  return hash;
}

// Fixed-size values made of 32-bit words without padding.
template <typename Value, uint32_t kMax>
class Dictionary {
 public:
  void clear() {
    if (count_ > 0) std::memset(slots_, 0, sizeof(slots_));
    count_ = 0;
  }
  // Returns the value's id; `is_new`: it was just assigned. A new value does not get one of the
  // last `kept_free` ids.
  uint32_t find_or_add(const Value& value, bool& is_new, uint32_t kept_free = 0) {
    is_new = false;
    uint32_t slot = hash_words(&value, sizeof(value)) % kSlots;
    for (; slots_[slot] != 0; slot = (slot + 1) % kSlots) {
      if (std::memcmp(&values_[slots_[slot] - 1], &value, sizeof(value)) == 0) return slots_[slot];
    }
    if (count_ + kept_free >= kMax) return 0;
    std::memcpy(&values_[count_], &value, sizeof(value));
    is_new = true;
    return slots_[slot] = ++count_;
  }

 private:
  static constexpr uint32_t kSlots = kMax * 2;

  uint32_t slots_[kSlots] = {};
  Value values_[kMax] = {};
  uint32_t count_ = 0;
};

// Kernel names, as CUPTI points to them. A pointer does not identify a name: a module loaded in
// place of another may have its name at the same address. So the text is compared each time.
class NameDictionary {
 public:
  // Total bytes of all names. Beyond it names are refused, as they are beyond the count.
  static constexpr size_t kBytesMax = 16 << 20;

  void clear();
  // `text_bytes`: how much of the name is sent, at most GPUPERF_NAME_BYTES_MAX.
  uint32_t find_or_add(const char* text, size_t& text_bytes, bool& is_new);

 private:
  static constexpr uint32_t kMax = GPUPERF_NAMES_MAX - 1;
  static constexpr uint32_t kSlots = kMax * 2 + 1;
  static constexpr uint32_t kRecent = 1024;
  struct Recent {
    const char* text;
    uint32_t id;
  };
  bool is_name(uint32_t id, const char* text) const;

  uint32_t slots_[kSlots] = {};
  uint32_t offsets_[kMax] = {};  // of zero-terminated names in texts_
  Recent recent_[kRecent] = {};  // by pointer
  char* texts_ = nullptr;
  size_t used_bytes_ = 0;
  uint32_t count_ = 0;
};

}  // namespace gpuperf::injector
