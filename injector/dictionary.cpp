#include "injector/dictionary.h"

#include "injector/own_memory.h"

namespace gpuperf::injector {

void NameDictionary::clear() {
  if (count_ > 0) {
    std::memset(slots_, 0, sizeof(slots_));
    std::memset(recent_, 0, sizeof(recent_));
  }
  count_ = 0;
  used_bytes_ = 0;
}

bool NameDictionary::is_name(uint32_t id, const char* text) const {
  const char* known = texts_ + offsets_[id - 1];
  for (size_t i = 0; i < GPUPERF_NAME_BYTES_MAX; ++i) {
    if (known[i] != text[i]) return false;
    if (known[i] == '\0') return true;
  }
  return true;  // equal in the part that is sent
}

uint32_t NameDictionary::find_or_add(const char* text, size_t& text_bytes, bool& is_new) {
  is_new = false;
  Recent& recent = recent_[(reinterpret_cast<uintptr_t>(text) >> 3) % kRecent];
  if (recent.text == text && recent.id != 0 && is_name(recent.id, text)) return recent.id;
  text_bytes = strnlen(text, GPUPERF_NAME_BYTES_MAX);
  uint32_t slot = hash_bytes(text, text_bytes) % kSlots;
  for (; slots_[slot] != 0; slot = (slot + 1) % kSlots) {
    if (is_name(slots_[slot], text)) {
      recent = {text, slots_[slot]};
      return recent.id;
    }
  }
  if (texts_ == nullptr) {
    texts_ = static_cast<char*>(map_zeroes(kBytesMax));
    if (texts_ == nullptr) return 0;
  }
  if (count_ >= kMax || used_bytes_ + text_bytes + 1 > kBytesMax) return 0;
  offsets_[count_] = static_cast<uint32_t>(used_bytes_);
  std::memcpy(texts_ + used_bytes_, text, text_bytes);
  texts_[used_bytes_ + text_bytes] = '\0';
  used_bytes_ += text_bytes + 1;
  is_new = true;
  slots_[slot] = ++count_;
  recent = {text, count_};
  return count_;
}

}  // namespace gpuperf::injector
