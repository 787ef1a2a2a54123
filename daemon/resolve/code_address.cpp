#include "daemon/resolve/code_address.h"

namespace gpuperf {

std::vector<CodeAddress> to_return_addresses(const std::vector<uint64_t>& addresses) {
  std::vector<CodeAddress> codes;
  codes.reserve(addresses.size());
  for (const uint64_t address : addresses) codes.push_back({.address = address});
  return codes;
}

}  // namespace gpuperf
