#pragma once

// Numbers for values that come again and again, so that each is sent once. Injector's thread.
//
// Ids go from 1 up; 0 = the table is full. Bounds: `kMax` values, found by content in a table of
// twice the size. Memory is static and untouched until used.

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

// The same by words, for values that are made of them.
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

// Values of a fixed size, of 32-bit words without padding.
template <typename Value, uint32_t kMax>
class Dictionary {
 public:
  void clear() {
    if (count_ > 0) std::memset(slots_, 0, sizeof(slots_));
    count_ = 0;
  }
  // The value's id; `is_new` says that it got one just now.
  uint32_t find_or_add(const Value& value, bool& is_new) {
    is_new = false;
    uint32_t slot = hash_words(&value, sizeof(value)) % kSlots;
    for (; slots_[slot] != 0; slot = (slot + 1) % kSlots) {
      if (std::memcmp(&values_[slots_[slot] - 1], &value, sizeof(value)) == 0) return slots_[slot];
    }
    if (count_ >= kMax) return 0;
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

// Names of kernels, as CUPTI points to them. A pointer is no identity: a module loaded in another's
// place may have its name there. So the text behind it is compared each time.
class NameDictionary {
 public:
  // Bytes of all names together; beyond it names are refused like beyond the count.
  static constexpr size_t kBytesMax = 16 << 20;

  void clear();
  // `text_bytes` is what of it is sent: at most GPUPERF_NAME_BYTES_MAX.
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
  uint32_t offsets_[kMax] = {};  // into texts_, of zero-terminated names
  Recent recent_[kRecent] = {};  // by pointer
  char* texts_ = nullptr;
  size_t used_bytes_ = 0;
  uint32_t count_ = 0;
};

}  // namespace gpuperf::injector
