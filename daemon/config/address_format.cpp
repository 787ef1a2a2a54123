#include "daemon/config/address_format.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>

#include "daemon/base/endpoint.h"
#include "daemon/base/listen_address.h"
#include "daemon/config/error_text.h"

namespace gpuperf {
namespace {

constexpr size_t kHostNameMaxBytes = 253;  // RFC 1035

bool parses_as(int family, const std::string& host) {
  in6_addr binary{};  // room for either family
  return ::inet_pton(family, host.c_str(), &binary) == 1;
}

// Of any path: what no file or folder can be named.
std::optional<std::string> find_path_fault(std::string_view path) {
  constexpr size_t kPathMaxBytes = 4000;  // PATH_MAX, and room for the file's name
  if (has_control_character(path)) return "the path contains a control character";
  if (path.size() > kPathMaxBytes) {
    return "a path has at most " + std::to_string(kPathMaxBytes) + " bytes";
  }
  return std::nullopt;
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

std::optional<std::string> find_host_fault(const std::string& host) {
  if (host.find(':') != host.npos) {
    if (parses_as(AF_INET6, host)) return std::nullopt;
    return quote_for_message(host) + " is not an IPv6 address";
  }
  if (host.find_first_not_of("0123456789.") == host.npos) {
    if (parses_as(AF_INET, host)) return std::nullopt;
    return quote_for_message(host) + " is not an IPv4 address";
  }
  if (host.size() <= kHostNameMaxBytes && std::ranges::all_of(host, is_host_character))
    return std::nullopt;
  return quote_for_message(host) + " is not a host name";
}

}  // namespace

std::optional<std::string> find_tcp_address_fault(std::string_view address) {
  if (address.empty()) return std::nullopt;
  if (address.find("://") != address.npos) return "remove what comes before the host";
  const Result<HostPort> parsed = parse_host_port(address);
  if (parsed.ok()) return find_host_fault(parsed->host);
  // The error repeats the address, which our message has already.
  const std::string error(parsed.status().message());
  std::string_view fault = error;
  const std::string repeated = "address \"" + std::string(address) + "\": ";
  if (fault.starts_with(repeated)) fault.remove_prefix(repeated.size());
  return std::string(fault);
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
  if (has_control_character(path)) return "the path contains a control character";
  if (path.size() > kPathMaxBytes)
    return "a socket's path has at most " + std::to_string(kPathMaxBytes) + " bytes";
  return std::nullopt;
}

std::optional<std::string> find_endpoint_fault(std::string_view endpoint) {
  if (endpoint.empty()) return std::nullopt;
  const Result<Endpoint> parsed = parse_endpoint(endpoint);
  if (parsed.ok()) return find_host_fault(parsed->address.host);
  const std::string error(parsed.status().message());
  const size_t begin = error.rfind("\": ") + 3;  // behind the endpoint
  return error.substr(begin, error.find("; write host:port", begin) - begin);
}

std::optional<std::string> find_header_fault(std::string_view name, std::string_view value) {
  if (name.empty() || !std::ranges::all_of(name, is_host_character)) {
    return quote_for_message(name) +
           " is not a header name: use letters, digits, \".\", \"-\" and \"_\"";
  }
  if (name.starts_with("grpc-") || name.ends_with("-bin")) {
    return quote_for_message(name) +
           " cannot be set: gRPC reserves grpc-…, and …-bin headers are binary";
  }
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (std::ranges::all_of(value, is_printable)) return std::nullopt;
  return "the value of " + quote_for_message(name) + " may contain only printable ASCII characters";
}

std::optional<std::string> find_attribute_fault(std::string_view name, std::string_view value) {
  const auto is_allowed = [](char c) { return is_host_character(c) || c == '/'; };
  if (name.empty() || !std::ranges::all_of(name, is_allowed)) {
    return quote_for_message(name) +
           " is not an attribute name: write for example deployment.environment";
  }
  if (has_control_character(value)) {
    return "the value of " + quote_for_message(name) + " contains a control character";
  }
  return std::nullopt;
}

std::optional<std::string> find_folder_fault(std::string_view path) {
  if (path.empty()) return std::nullopt;
  if (!path.starts_with('/') || path.find_first_not_of('/') == path.npos) {
    return "the path must be absolute and name a folder: /var/lib/gpuperf";
  }
  return find_path_fault(path);
}

std::optional<std::string> find_file_fault(std::string_view path) {
  if (path.empty()) return std::nullopt;
  if (!path.starts_with('/') || path.ends_with('/')) {
    return "the path must be absolute and name a file: /etc/gpuperf/ca.pem";
  }
  return find_path_fault(path);
}

std::optional<std::string> find_cdi_spec_fault(std::string_view path) {
  constexpr std::string_view kEnding = ".json";
  if (path.empty()) return std::nullopt;
  if (!path.starts_with('/') || !path.ends_with(kEnding) || path.ends_with("/.json")) {
    return "the path must be absolute and end in .json, in a folder that container runtimes read: "
           "/var/run/cdi/gpuperf.json";
  }
  return find_path_fault(path);
}

std::optional<std::string> find_socket_path_fault(std::string_view path) {
  constexpr size_t kPathMaxBytes = 107;  // sockaddr_un.sun_path and its zero
  if (path.size() > kPathMaxBytes) {
    return "the path of a socket has at most " + std::to_string(kPathMaxBytes) + " bytes";
  }
  if (path.empty()) return std::nullopt;
  if (!path.starts_with('/') || path.ends_with('/')) {
    return "the path must be absolute and name a socket: /run/gpuperf/ingest.sock";
  }
  if (has_control_character(path)) return "the path contains a control character";
  return std::nullopt;
}

}  // namespace gpuperf
