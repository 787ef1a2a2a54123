#include "client/address.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

namespace gpuperf::client {
namespace {

constexpr std::string_view kRunningHint =
    "is gpuperfd running? see: systemctl status gpuperfd; another address: --address";

// gRPC reads the target as a URI.
std::string escape_uri_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || strchr("/-._~", c) != nullptr) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Status make_address_error(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      fmt::format("address \"{}\": {}; write unix:/path/to/api.sock or host:port", text, why));
}

Status make_unreachable(const Address& address, std::string_view why) {
  return absl::UnavailableError(
      fmt::format("cannot reach gpuperfd at {}: {}; {}", address.text, why, kRunningHint));
}

Status explain_refusal(const Address& address, int error_number, std::chrono::nanoseconds timeout) {
  struct stat info = {};
  switch (error_number) {
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          fmt::format("cannot open {}: permission denied; reading needs root or membership of "
                      "group gpuperf: sudo usermod -aG gpuperf \"$USER\", then log in again",
                      address.text));
    case ENOENT:
      return make_unreachable(address, "no such socket");
    case ECONNREFUSED:
      if (stat(address.unix_path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
        return make_unreachable(address, "not a socket");
      }
      return make_unreachable(address, "nothing listens on this socket");
    case EAGAIN:
      return make_unreachable(address, fmt::format("it accepts no connection within {:g} s",
                                                   std::chrono::duration<double>(timeout).count()));
    default:  // errno is an open set
      return make_unreachable(address, strerror(error_number));
  }
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  Address address = {.text = std::string(text), .grpc_target = std::string(text), .unix_path = ""};
  std::string_view path = text;
  if (text.starts_with("unix:") || text.starts_with('/')) {
    if (path.starts_with("unix:")) path.remove_prefix(5);
    if (path.starts_with("//")) path.remove_prefix(2);
    if (path.empty()) return make_address_error(text, "no path");
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return make_address_error(text, "longer than the 107 bytes a socket path may have");
    }
    address.unix_path = std::string(path);
    address.grpc_target = fmt::format("unix:{}", escape_uri_path(path));
    return address;
  }
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  const bool has_port = colon != std::string_view::npos && colon > 0 &&
                        absl::SimpleAtoi(std::string(text.substr(colon + 1)), &port) && port > 0 &&
                        port <= 65535;
  if (!has_port) return make_address_error(text, "neither a socket path nor host:port");
  if (text.find('/') != std::string_view::npos) return make_address_error(text, "a URL");
  return address;
}

Status probe_socket(const Address& address, std::chrono::nanoseconds timeout) {
  if (address.unix_path.empty()) return absl::OkStatus();
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  address.unix_path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::InternalError(fmt::format("cannot make a socket: {}", strerror(errno)));
  // Bounds the wait for a listener whose queue is full because it no longer accepts.
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(timeout - seconds);
  const timeval limit = {.tv_sec = seconds.count(), .tv_usec = rest.count()};
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // valid by construction
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
  const int error_number = errno;
  close(fd);
  return connected ? absl::OkStatus() : explain_refusal(address, error_number, timeout);
}

}  // namespace gpuperf::client
