#include "daemon/export/http_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace gpuperf {

HttpPeer read_peer(const sockaddr_storage& address) {
  constexpr size_t kMappedBytes = 12;  // of ::ffff:127.0.0.1, before the last four
  constexpr size_t kNetworkBytes = 8;  // a /64
  constexpr uint8_t kLoopbackNet = 127;
  HttpPeer peer;
  in6_addr v6{};
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const in_addr v4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    (void)inet_ntop(AF_INET, &v4, text, sizeof text);  // there is room
    v6.s6_addr[10] = v6.s6_addr[11] = 0xff;
    std::memcpy(v6.s6_addr + kMappedBytes, &v4, sizeof v4);
  } else {
    v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    (void)inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  peer.address = text;
  if (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[kMappedBytes] == kLoopbackNet) {
    v6 = in6addr_loopback;
  } else if (!IN6_IS_ADDR_V4MAPPED(&v6) && !IN6_IS_ADDR_LOOPBACK(&v6)) {
    std::fill(v6.s6_addr + kNetworkBytes, std::end(v6.s6_addr), uint8_t{0});
  }
  std::ranges::copy(v6.s6_addr, peer.share.begin());
  return peer;
}

}  // namespace gpuperf
