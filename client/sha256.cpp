#include "client/sha256.h"

#include <absl/strings/escaping.h>
#include <openssl/sha.h>

namespace gpuperf::client {

static_assert(sizeof(Sha256) == SHA256_DIGEST_LENGTH);

Sha256 hash_sha256(std::string_view bytes) {
  Sha256 hash{};
  (void)SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), hash.data());
  return hash;
}

std::string to_hex(const Sha256& hash, size_t count) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(hash.data()), count});
}

}  // namespace gpuperf::client
