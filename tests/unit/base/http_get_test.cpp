#include "daemon/base/http_get.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "daemon/base/fd.h"

namespace gpuperf {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr size_t kMaxBytes = 4096;

// Answers one request as `answer` does it, which gets the connection after the request was read.
class OneAnswer {
 public:
  explicit OneAnswer(std::function<void(int)> answer) {
    auto listening = listen_on(url_.address, 1);
    EXPECT_TRUE(listening.ok()) << listening.status();
    listening_ = *std::move(listening);
    thread_ = std::thread([this, answer = std::move(answer)] {
      int fd = -1;
      while ((fd = accept(listening_.get(), nullptr, nullptr)) < 0) usleep(1'000);
      const Fd connection(fd);
      char request[1'000];
      while (request_.find("\r\n\r\n") == request_.npos) {
        const ssize_t bytes = read(fd, request, sizeof request);
        if (bytes <= 0) return;
        request_.append(request, static_cast<size_t>(bytes));
      }
      answer(fd);
    });
  }
  ~OneAnswer() {
    if (thread_.joinable()) thread_.join();
  }

  Result<std::string> get(std::chrono::milliseconds timeout = 10s) {
    auto body = get_over_http(url_, timeout, kMaxBytes);
    is_over_ = true;
    thread_.join();
    return body;
  }

  HttpUrl url_{.address = {"127.0.0.1", 0}, .path = "/metrics"};
  std::string request_;
  std::atomic<bool> is_over_ = false;

 private:
  Fd listening_;
  std::thread thread_;
};

void write_text(int fd, const std::string& text) {
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

TEST(HttpGetTest, ReadsUrls) {
  const auto url = parse_http_url("http://127.0.0.1:8000/metrics?a=b");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(*url, (HttpUrl{.address = {"127.0.0.1", 8000}, .path = "/metrics?a=b"}));
  EXPECT_EQ(parse_http_url("http://[::1]:1")->path, "/");
  EXPECT_EQ(parse_http_url("http://localhost:1/")->address.host, "localhost");
  for (const char* text :
       {"", "https://127.0.0.1:1/", "http://127.0.0.1/", "http://engine:1/", "http://127.0.0.1:0/",
        "http://127.0.0.1:1/a b", "http://u:p@127.0.0.1:1/", "http://127.0.0.1:1/\r\nHost: x"}) {
    const auto refused = parse_http_url(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("write http://127.0.0.1:8000/metrics"));
  }
}

TEST(HttpGetTest, TakesTheBodyHoweverItComes) {
  OneAnswer server([](int fd) {
    for (const char c : std::string("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n")) {
      write_text(fd, std::string(1, c));
    }
  });
  const auto body = server.get();
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(*body, "up 1\n");
  EXPECT_THAT(server.request_, ::testing::StartsWith("GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:"));
}

TEST(HttpGetTest, SaysWhyThereIsNone) {
  OneAnswer missing([](int fd) { write_text(fd, "HTTP/1.1 404 Not Found\r\n\r\n200"); });
  EXPECT_EQ(missing.get().status().message(), "the answer is HTTP/1.1 404 Not Found");
  OneAnswer other([](int fd) { write_text(fd, "SSH-2.0\r\n\r\n"); });
  EXPECT_EQ(other.get().status().message(), "the answer is not one of HTTP/1");
  OneAnswer half(
      [](int fd) { write_text(fd, "HTTP/1.1 200 OK\r\nX: 1\r\ncontent-length:  9\r\n\r\nup 12"); });
  EXPECT_EQ(half.get().status().message(), "the answer has 5 of 9 bytes");
  OneAnswer chunks([](int fd) {
    write_text(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nup 1\n\r\n0\r\n\r\n");
  });
  EXPECT_THAT(std::string(chunks.get().status().message()), HasSubstr("comes in chunks"));
  HttpUrl nobody{.address = {"127.0.0.1", 0}};
  { ASSERT_TRUE(listen_on(nobody.address, 1).ok()); }
  EXPECT_EQ(get_over_http(nobody, 1s, kMaxBytes).status().message(), "connect: Connection refused");
}

TEST(HttpGetTest, TakesNoMoreThanItMay) {
  OneAnswer server([](int fd) {
    const std::string piece(1'000, 'x');
    while (send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) > 0) continue;
  });
  EXPECT_TRUE(absl::IsOutOfRange(server.get().status()));
}

TEST(HttpGetTest, WaitsNoLongerThanItMayForAByteNowAndThen) {
  OneAnswer server([&server](int fd) {
    while (!server.is_over_) {
      (void)send(fd, "x", 1, MSG_NOSIGNAL);
      usleep(10'000);
    }
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(server.get(200ms).status()));
}

}  // namespace
}  // namespace gpuperf
