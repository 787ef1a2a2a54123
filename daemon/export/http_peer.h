#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

namespace gpuperf {

// Whose connection it is, as far as the kernel knows.
struct HttpPeer {
  // Addresses of one client: who has one of them has them all. The loopback's are one share, so is
  // each /64 of IPv6.
  using Share = std::array<uint8_t, 16>;

  std::string address;  // "127.0.0.1", "::ffff:127.0.0.1"
  Share share{};
};

HttpPeer read_peer(const sockaddr_storage& address);

}  // namespace gpuperf
