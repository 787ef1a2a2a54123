#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "daemon/base/fd.h"

namespace gpuperf {

// Both ends of a TCP connection of this host; the server's is invalid if there is none.
struct TcpPair {
  Fd client;
  Fd server;
};

inline TcpPair make_tcp_pair() {
  const Fd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  TcpPair pair{.client = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  if (bind(listening.get(), any, bytes) == 0 && listen(listening.get(), 1) == 0 &&
      getsockname(listening.get(), any, &bytes) == 0 &&
      connect(pair.client.get(), any, bytes) == 0) {
    pair.server = Fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  return pair;
}

}  // namespace gpuperf
