#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuperf::client {

using Sha256 = std::array<uint8_t, 32>;

// For what is in memory.
Sha256 hash_sha256(std::string_view bytes);
// The first `count` bytes of a hash as lower-case hexadecimal digits.
std::string to_hex(const Sha256& hash, size_t count = 32);

}  // namespace gpuperf::client
