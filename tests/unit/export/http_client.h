#pragma once

// A client that sends what it likes, and takes answers when it likes.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/listen_address.h"

namespace gpuperf::testing {

class HttpClient {
 public:
  explicit HttpClient(const HostPort& address)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in target{.sin_family = AF_INET, .sin_port = htons(address.port)};
    inet_pton(AF_INET, address.host.c_str(), &target.sin_addr);
    EXPECT_EQ(connect(fd(), reinterpret_cast<sockaddr*>(&target), sizeof target), 0);
  }

  int fd() const { return socket_.get(); }
  // Whether all of it was sent: the server may close meanwhile.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Until the server closes.
  std::string take_all() {
    std::string all;
    char piece[65536];
    for (ssize_t got = 0; (got = recv(fd(), piece, sizeof piece, 0)) > 0;) {
      all.append(piece, static_cast<size_t>(got));
    }
    return all;
  }
  std::string ask(std::string_view text) {
    (void)send(text);
    return take_all();
  }

 private:
  Fd socket_;
};

// Polls; false after 20 s.
template <typename Condition>
bool wait_for(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    (void)poll(nullptr, 0, 5);
  }
  return true;
}

}  // namespace gpuperf::testing
