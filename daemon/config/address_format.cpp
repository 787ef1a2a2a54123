#include "daemon/config/address_format.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "daemon/config/error_text.h"

namespace gpuperf {
namespace {

constexpr size_t kHostNameMaxBytes = 253;  // RFC 1035

bool parses_as(int family, std::string_view host) {
  in6_addr binary{};  // room for either family
  return ::inet_pton(family, std::string(host).c_str(), &binary) == 1;
}

bool is_port(std::string_view port) {
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc() && end == port.data() + port.size();
}

std::optional<std::string> find_host_fault(std::string_view host) {
  if (host.empty()) return "name the address: 127.0.0.1 for this host only, 0.0.0.0 for any";
  if (host.starts_with('[')) {
    if (host.ends_with(']') && parses_as(AF_INET6, host.substr(1, host.size() - 2)))
      return std::nullopt;
    return quote_for_message(host) + " is no IPv6 address in brackets";
  }
  if (host.find(':') != host.npos) return "write an IPv6 address in brackets: [::1]:9465";
  if (host.find_first_not_of("0123456789.") == host.npos) {
    if (parses_as(AF_INET, host)) return std::nullopt;
    return quote_for_message(host) + " is no IPv4 address";
  }
  const auto is_host_character = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '.' || c == '-' || c == '_';
  };
  if (host.size() <= kHostNameMaxBytes && std::ranges::all_of(host, is_host_character))
    return std::nullopt;
  return quote_for_message(host) + " is no host name";
}

}  // namespace

std::optional<std::string> find_tcp_address_fault(std::string_view address) {
  if (address.empty()) return std::nullopt;
  if (address.find("://") != address.npos) return "leave out what stands before the host";
  const size_t colon = address.rfind(':');
  if (colon == address.npos || address.ends_with(']')) return "the port is missing: 127.0.0.1:9465";
  if (std::optional<std::string> fault = find_host_fault(address.substr(0, colon))) return fault;
  if (is_port(address.substr(colon + 1))) return std::nullopt;
  return "the port is a number from 0 to 65535";
}

std::optional<std::string> find_rpc_address_fault(std::string_view address) {
  constexpr std::string_view kUnix = "unix:";
  // The kernel keeps a terminating zero beside the path.
  constexpr size_t kPathMaxBytes = sizeof(sockaddr_un::sun_path) - 1;
  if (address.starts_with('/')) return "write unix:" + std::string(address);
  if (!address.starts_with(kUnix)) return find_tcp_address_fault(address);
  const std::string_view path = address.substr(kUnix.size());
  if (!path.starts_with('/')) return "the path must be absolute: unix:/run/gpuperf/api.sock";
  if (path.ends_with('/')) return "the path must name a file: unix:/run/gpuperf/api.sock";
  if (has_control_character(path)) return "the path holds a control character";
  if (path.size() > kPathMaxBytes)
    return "a socket's path has at most " + std::to_string(kPathMaxBytes) + " bytes";
  return std::nullopt;
}

}  // namespace gpuperf
