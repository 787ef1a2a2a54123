// What a support bundle asks others on this host for: the journal, and the metrics' port.

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "client/bundle.h"

namespace gpuperf::client {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr time_t kTimeoutSeconds = 15;
constexpr const char* kJournalctl = "/usr/bin/journalctl";

// All that comes until the end, at most kMaxBytes.
Result<std::string> read_to_end(int fd, std::string_view what) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::InternalError(fmt::format("{}: {}", what, strerror(errno)));
    if (count == 0 || text.size() >= kMaxBytes) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

Result<int> connect_to(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    return absl::InvalidArgumentError(fmt::format("{}:{}: no address", host, port));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> address(found, &freeaddrinfo);
  const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::InternalError(fmt::format("socket: {}", strerror(errno)));
  const timeval timeout{.tv_sec = kTimeoutSeconds, .tv_usec = 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);  // best effort
  if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) return fd;
  const int error = errno;
  close(fd);
  return absl::UnavailableError(fmt::format("{}:{}: {}", host, port, strerror(error)));
}

}  // namespace

Result<std::string> fetch_metrics(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return absl::InvalidArgumentError(address + ": no port");
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  ASSIGN_OR_RETURN(const int fd, connect_to(host, address.substr(colon + 1)));
  const std::string request =
      fmt::format("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", address);
  const bool is_sent = send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
                       static_cast<ssize_t>(request.size());
  Result<std::string> answer =
      is_sent ? read_to_end(fd, address)
              : Result<std::string>(absl::InternalError(address + ": " + strerror(errno)));
  close(fd);
  RETURN_IF_ERROR(answer.status());
  const size_t body = answer->find("\r\n\r\n");
  if (!answer->starts_with("HTTP/1.1 200") || body == std::string::npos) {
    return absl::InternalError(fmt::format(
        "{}: {}", address, answer->substr(0, std::min(answer->find('\r'), size_t{80}))));
  }
  return answer->substr(body + 4);
}

Result<std::string> read_journal() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::InternalError(fmt::format("pipe: {}", strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::array<std::string, 7> words = {"journalctl", "--unit=gpuperfd", "--lines=2000",
                                      "--no-pager", "--no-hostname",   "--output=short-iso-precise",
                                      "--quiet"};
  std::array<char*, 8> arguments{};
  for (size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  pid_t pid = 0;
  const int error = posix_spawn(&pid, kJournalctl, &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Result<std::string> text = error == 0 ? read_to_end(ends[0], kJournalctl)
                                        : Result<std::string>(absl::NotFoundError(
                                              fmt::format("{}: {}", kJournalctl, strerror(error))));
  close(ends[0]);
  int status = 0;
  if (error == 0) (void)waitpid(pid, &status, 0);
  RETURN_IF_ERROR(text.status());
  if (text->empty()) {
    return absl::NotFoundError("the journal has no lines of gpuperfd.service that you may read");
  }
  return text;
}

}  // namespace gpuperf::client
