#pragma once

// Damage of the kinds that files made to break a reader have.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

namespace gpuperf {

// `bytes` with one to sixteen places changed: bits, numbers at their limits, pieces moved, the end
// cut off. Half of the places are in the last third of the file, where tables and headers of
// sections are.
inline std::string mutate(std::string bytes, std::mt19937& random) {
  const uint64_t kNumbers[] = {0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0xffffffff, UINT64_MAX};
  for (uint32_t change = 1 + random() % 16; change > 0 && bytes.size() > 64; --change) {
    const size_t third = bytes.size() / 3;
    const size_t at = random() % 2 == 0 ? random() % bytes.size() : 2 * third + random() % third;
    const size_t room = bytes.size() - at;
    switch (random() % 8) {
      case 0: {
        const uint64_t number = kNumbers[random() % std::size(kNumbers)];
        std::memcpy(&bytes[at], &number, std::min<size_t>(room, 1u << random() % 4));
        break;
      }
      case 1: {
        const size_t from = random() % bytes.size();
        const size_t count = std::min({size_t{1} + random() % 64, room, bytes.size() - from});
        std::memmove(&bytes[at], &bytes[from], count);
        break;
      }
      case 2:
        std::fill_n(&bytes[at], std::min<size_t>(room, random() % 32), static_cast<char>(random()));
        break;
      case 3:
        if (random() % 16 == 0) bytes.resize(at);
        break;
      default:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
  }
  return bytes;
}

}  // namespace gpuperf
