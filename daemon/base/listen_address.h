#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

// Where a TCP server listens.
struct HostPort {
  std::string host;   // name or address, IPv6 without brackets
  uint16_t port = 0;  // 0 = any free one
  bool operator==(const HostPort&) const = default;
};

// Reads "127.0.0.1:9465", "localhost:0" and "[::1]:9465". The host must be given: every interface
// is said as 0.0.0.0 or [::].
Result<HostPort> parse_host_port(std::string_view text);

// The text parse_host_port reads.
std::string format_host_port(const HostPort& address);

// Whether only programs of this host can reach it: 127.0.0.0/8, ::1 and the name "localhost".
bool is_loopback(const HostPort& address);

// A socket that listens there, does not block and has that many places for connections that wait;
// port 0 becomes the port it got. ALREADY_EXISTS: another program listens there.
Result<Fd> listen_on(HostPort& address, int backlog);

// Tries to listen on `address` and stops again. The libraries that serve do not tell why they could
// not bind; this does, so ask it first. ALREADY_EXISTS: another program listens there.
Status check_listenable(const HostPort& address);

}  // namespace gpuperf
