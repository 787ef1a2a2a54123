#include "daemon/base/http_get.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/base/fd.h"

namespace gpuperf {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::string_view kScheme = "http://";
constexpr std::string_view kEndOfHeaders = "\r\n\r\n";
constexpr size_t kPieceBytes = 64 << 10;

Status bad_url(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      fmt::format("\"{}\": {}; write http://127.0.0.1:8000/metrics", text, why));
}

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;  // 0 = there is none
};

Address make_address(const HostPort& address) {
  Address made;
  auto& v4 = reinterpret_cast<sockaddr_in&>(made.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(made.storage);
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    made.bytes = sizeof v4;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    made.bytes = sizeof v6;
  }
  return made;
}

// Until the socket is ready for `events`.
Status wait_for(const Fd& socket, short events, SteadyClock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
  pollfd polled{.fd = socket.get(), .events = events, .revents = 0};
  const int ready = poll(&polled, 1, static_cast<int>(std::max<int64_t>(left, 0)));
  if (ready > 0) return absl::OkStatus();
  if (ready < 0 && errno == EINTR) return wait_for(socket, events, deadline);
  return ready == 0 ? absl::DeadlineExceededError("no complete answer in time")
                    : errno_status(errno, "poll");
}

Status connect_to(const Fd& socket, const Address& address, SteadyClock::time_point deadline) {
  const auto* const any = reinterpret_cast<const sockaddr*>(&address.storage);
  if (connect(socket.get(), any, address.bytes) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS)
    return absl::UnavailableError(std::string("connect: ") + strerror(errno));
  RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
  int error = 0;
  socklen_t bytes = sizeof error;
  (void)getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);  // of a socket: cannot fail
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(std::string("connect: ") + strerror(error));
}

Status send_all(const Fd& socket, std::string_view text, SteadyClock::time_point deadline) {
  while (!text.empty()) {
    const ssize_t sent = send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return absl::UnavailableError(std::string("send: ") + strerror(errno));
    }
  }
  return absl::OkStatus();
}

// Until the server closes the connection.
Result<std::string> receive_all(const Fd& socket, size_t max_bytes,
                                SteadyClock::time_point deadline) {
  std::string answer;
  while (true) {
    RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline));
    const size_t before = answer.size();
    answer.resize(before + kPieceBytes);
    const ssize_t received = recv(socket.get(), answer.data() + before, kPieceBytes, 0);
    answer.resize(before + static_cast<size_t>(std::max<ssize_t>(received, 0)));
    if (received == 0) return answer;
    if (received < 0 && errno != EAGAIN && errno != EINTR) {
      return absl::UnavailableError(std::string("receive: ") + strerror(errno));
    }
    if (answer.size() > max_bytes) {
      return absl::OutOfRangeError(fmt::format("the answer has more than {} bytes", max_bytes));
    }
  }
}

// The value of a header among `lines`; empty = there is none.
std::string find_header(std::string_view lines, std::string_view name) {
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find("\r\n"));
    lines.remove_prefix(std::min(line.size() + 2, lines.size()));
    const bool is_it = line.size() > name.size() && line[name.size()] == ':' &&
                       strncasecmp(line.data(), name.data(), name.size()) == 0;
    if (!is_it) continue;
    const std::string_view value = line.substr(name.size() + 1);
    return std::string(value.substr(std::min(value.find_first_not_of(' '), value.size())));
  }
  return "";
}

// A program that ends while it answers leaves half of it: half a number is another one.
Result<std::string> take_body(std::string answer) {
  const size_t end = answer.find(kEndOfHeaders);
  const std::string_view line = std::string_view(answer).substr(0, answer.find("\r\n"));
  if (end == answer.npos || !line.starts_with("HTTP/1.")) {
    return absl::UnavailableError("the answer is not one of HTTP/1");
  }
  if (line.substr(std::min<size_t>(8, line.size()), 4) != " 200") {
    return absl::UnavailableError("the answer is " + std::string(line.substr(0, 100)));
  }
  const std::string_view headers = std::string_view(answer).substr(0, end);
  if (!find_header(headers, "Transfer-Encoding").empty()) {
    return absl::UnavailableError("the answer comes in chunks, which HTTP/1.0 does not have");
  }
  std::string body = answer.substr(end + kEndOfHeaders.size());
  const std::string length = find_header(headers, "Content-Length");
  if (!length.empty() && length != std::to_string(body.size())) {
    return absl::UnavailableError(
        fmt::format("the answer has {} of {} bytes", body.size(), length.substr(0, 20)));
  }
  return body;
}

}  // namespace

Result<HttpUrl> parse_http_url(std::string_view text) {
  if (!text.starts_with(kScheme)) return bad_url(text, "does not begin with http://");
  const std::string_view rest = text.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  HttpUrl url;
  if (slash < rest.size()) url.path = rest.substr(slash);
  if (url.path.find_first_of(" \t\r\n") != url.path.npos) return bad_url(text, "has a blank");
  auto address = parse_host_port(rest.substr(0, slash));
  if (!address.ok()) return bad_url(text, std::string(address.status().message()));
  url.address = *std::move(address);
  if (url.address.port == 0) return bad_url(text, "port 0 cannot be reached");
  if (make_address(url.address).bytes == 0) {
    return bad_url(text, "the host must be an IP address or localhost");
  }
  return url;
}

Result<std::string> get_over_http(const HttpUrl& url, std::chrono::milliseconds timeout,
                                  size_t max_bytes) {
  const auto deadline = SteadyClock::now() + timeout;
  const Address address = make_address(url.address);
  const Fd socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return errno_status(errno, "socket");
  RETURN_IF_ERROR(connect_to(socket, address, deadline));
  RETURN_IF_ERROR(send_all(socket,
                           fmt::format("GET {} HTTP/1.0\r\nHost: {}\r\nAccept: "
                                       "text/plain;version=0.0.4\r\nUser-Agent: gpuperf\r\n\r\n",
                                       url.path, format_host_port(url.address)),
                           deadline));
  ASSIGN_OR_RETURN(std::string answer, receive_all(socket, max_bytes, deadline));
  return take_body(std::move(answer));
}

}  // namespace gpuperf
