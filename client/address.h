#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "client/status.h"

namespace gpuperf::client {

inline constexpr std::string_view kDefaultAddress = "unix:/run/gpuperf/api.sock";

// Where a daemon listens.
struct Address {
  std::string text;         // as given, for messages
  std::string grpc_target;  // as gRPC wants it
  std::string unix_path;    // empty = not a path on this machine
};

// Files in PEM form, for addresses that are not a path.
struct TlsFiles {
  std::string ca_file;    // who vouches for the daemon
  std::string cert_file;  // shown to the daemon
  std::string key_file;
};

// "unix:/path", "/path", "host:port", "[v6]:port".
Result<Address> parse_address(std::string_view text);

// Connects to a socket path and hangs up, because gRPC 1.51 says "failed to connect" for every
// cause: missing, stale and forbidden sockets need different advice. Addresses without a path pass.
Status probe_socket(const Address& address, std::chrono::nanoseconds timeout);

}  // namespace gpuperf::client
