#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuperf::otlp {

// Ids that are derived, not drawn, so that what is sent twice has one id: FNV-1a over the parts,
// then the finaliser of MurmurHash3, which makes near inputs differ in every bit.
class IdHash {
 public:
  explicit IdHash(uint64_t seed) : state_(0xcbf29ce484222325 ^ seed) {}
  IdHash& add(std::string_view bytes) {
    for (const unsigned char byte : bytes) state_ = (state_ ^ byte) * 0x100000001b3;
    return *this;
  }
  IdHash& add(uint64_t number) {
    for (int i = 0; i < 8; ++i) state_ = (state_ ^ (number >> (8 * i) & 0xff)) * 0x100000001b3;
    return *this;
  }
  // 8 bytes, not all zero: such an id is none.
  std::string take() const {
    uint64_t hash = state_;
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
    hash = std::max<uint64_t>(hash ^ hash >> 33, 1);
    std::string bytes;
    for (int i = 56; i >= 0; i -= 8) bytes += static_cast<char>(hash >> i);
    return bytes;
  }

 private:
  uint64_t state_;
};

}  // namespace gpuperf::otlp
