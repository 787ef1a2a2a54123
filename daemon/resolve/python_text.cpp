#include "daemon/resolve/python_text.h"

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace gpuperf {
namespace {

// PyASCIIObject.state: interned in 2 bits, then these.
unsigned get_letter_bytes(uint32_t state) { return (state >> 2) & 7; }
bool is_compact(uint32_t state) { return (state & 1U << 5) != 0; }
bool is_ascii(uint32_t state) { return (state & 1U << 6) != 0; }

void append_utf8(std::string& text, uint32_t letter) {
  constexpr uint32_t kReplacement = 0xfffd;
  const bool is_surrogate = letter >= 0xd800 && letter <= 0xdfff;
  if (is_surrogate || letter > 0x10ffff) letter = kReplacement;
  const auto append_tail = [&](unsigned shift) {
    text += static_cast<char>(0x80 | (letter >> shift & 0x3f));
  };
  if (letter < 0x80) {
    text += static_cast<char>(letter);
  } else if (letter < 0x800) {
    text += static_cast<char>(0xc0 | letter >> 6);
    append_tail(0);
  } else if (letter < 0x10000) {
    text += static_cast<char>(0xe0 | letter >> 12);
    append_tail(6);
    append_tail(0);
  } else {
    text += static_cast<char>(0xf0 | letter >> 18);
    append_tail(12);
    append_tail(6);
    append_tail(0);
  }
}

}  // namespace

std::optional<std::string> read_python_text(const gpuperf_python_layout& layout, uint64_t address,
                                            uint64_t max_letters, const ReadMemory& read) {
  const auto length = read_value<uint64_t>(read, address + layout.text_length);
  const auto state = read_value<uint32_t>(read, address + layout.text_state);
  if (!length || !state || !is_compact(*state) || *length > max_letters) return std::nullopt;
  const unsigned letter_bytes = get_letter_bytes(*state);
  if (letter_bytes != 1 && letter_bytes != 2 && letter_bytes != 4) return std::nullopt;
  if (is_ascii(*state) && letter_bytes != 1) return std::nullopt;
  std::vector<std::byte> letters(*length * letter_bytes);
  if (!read(address + (is_ascii(*state) ? layout.text_ascii : layout.text_compact), letters)) {
    return std::nullopt;
  }
  std::string text;
  text.reserve(letters.size());
  for (size_t i = 0; i < letters.size(); i += letter_bytes) {
    uint32_t letter = 0;
    std::memcpy(&letter, &letters[i], letter_bytes);
    append_utf8(text, letter);
  }
  return text;
}

}  // namespace gpuperf
