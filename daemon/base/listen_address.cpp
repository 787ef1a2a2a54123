#include "daemon/base/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <spdlog/fmt/fmt.h>

#include <cerrno>
#include <charconv>
#include <memory>

namespace gpuperf {
namespace {

Status bad_address(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format(
      "address \"{}\": {}; write host:port, for example 127.0.0.1:9465 or [::1]:9465", text, why));
}

Status explain_bind_error(int error_number, const HostPort& address) {
  const std::string where = format_host_port(address) + ": listen: ";
  if (error_number == EADDRINUSE) {
    return absl::AlreadyExistsError(
        fmt::format("{}address in use: another program, perhaps another gpuperfd, listens there; "
                    "`ss -ltnp 'sport = :{}'` names it",
                    where, address.port));
  }
  if (error_number == EADDRNOTAVAIL) {
    return absl::NotFoundError(
        where + "no interface of this host has that address; `ip address` lists them");
  }
  if (error_number == EACCES) {
    return absl::PermissionDeniedError(
        where + "not permitted; a port below 1024 needs CAP_NET_BIND_SERVICE");
  }
  return errno_status(error_number, format_host_port(address) + ": listen");
}

uint16_t find_port(const Fd& listening) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  // Cannot fail on a socket that is bound.
  (void)getsockname(listening.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(bound).sin_port
                                          : reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_address(text, "no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return bad_address(text, "no \"]\" before the port");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad_address(text, "an IPv6 address needs brackets");
  }
  if (host.empty()) return bad_address(text, "no host (every interface is 0.0.0.0)");
  uint16_t port = 0;
  const char* const end = port_text.data() + port_text.size();
  const auto [stop, error] = std::from_chars(port_text.data(), end, port);
  if (error != std::errc() || stop != end) {
    return bad_address(text, "the port is not a number from 0 to 65535");
  }
  return HostPort{.host = std::string(host), .port = port};
}

std::string format_host_port(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

bool is_loopback(const HostPort& address) {
  if (address.host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

Result<Fd> listen_on(HostPort& address, int backlog) {
  const addrinfo hints{.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failure != 0) {
    return absl::NotFoundError(
        fmt::format("{}: look up host: {}", format_host_port(address), gai_strerror(failure)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  int error_number = EADDRNOTAVAIL;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    Fd socket(::socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                       info->ai_protocol));
    const int yes = 1, no = 0;
    // "::" is every address, those of IPv4 included, whatever the host's default.
    if (info->ai_family == AF_INET6) {
      (void)setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    }
    // Connections still closing from the daemon before this one do not count. Not SO_REUSEPORT: a
    // second daemon would silently take half of the connections.
    if (socket.valid() &&
        setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        // Accepted connections inherit it: a call is one small write, and waits for its answer.
        setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0 &&
        bind(socket.get(), info->ai_addr, info->ai_addrlen) == 0 &&
        ::listen(socket.get(), backlog) == 0) {
      address.port = find_port(socket);
      return socket;
    }
    error_number = errno;
  }
  return explain_bind_error(error_number, address);
}

Status check_listenable(const HostPort& address) {
  HostPort tried = address;
  return listen_on(tried, 1).status();
}

}  // namespace gpuperf
