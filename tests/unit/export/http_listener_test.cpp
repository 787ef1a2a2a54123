#include "daemon/export/http_listener.h"

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/mutex.h"
#include "tests/unit/export/http_client.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;
using testing::HttpClient;
using testing::wait_for;

constexpr char kGet[] = "GET /small HTTP/1.1\r\n\r\n";
constexpr char kGetLarge[] = "GET /large HTTP/1.1\r\n\r\n";
constexpr char kGetShared[] = "GET /shared HTTP/1.1\r\n\r\n";
constexpr char kGetLater[] = "GET /later HTTP/1.1\r\n\r\n";
// More than the kernel keeps for a client that takes nothing.
constexpr size_t kLargeBytes = size_t{16} << 20;

class HttpListenerTest : public ::testing::Test {
 protected:
  // The large one is made anew for each, the shared one once.
  void start(const HttpLimits& limits = {}) {
    const HttpBody shared = make_body(std::string(kLargeBytes, 's'));
    std::vector<HttpRoute> routes = {
        {"GET", "/small",
         answer_at_once([](const HttpRequest&) { return make_text_response(200, "small\n"); })},
        {"GET", "/large", answer_at_once([](const HttpRequest&) {
           return make_text_response(200, std::string(kLargeBytes, 'l'));
         })},
        {"GET", "/shared",
         answer_at_once([shared](const HttpRequest&) { return HttpResponse{.body = shared}; })},
        {"GET", "/later",
         [this](const HttpRequest&, const HttpReply& reply) {
           const MutexLock lock(mutex_);
           replies_.push_back(reply);
         }},
        {"GET", "/throws", [](const HttpRequest&, const HttpReply&) { throw std::bad_alloc(); }},
        {"POST", "/echo/*", answer_at_once([](const HttpRequest& request) {
           return make_text_response(202, request.peer_address + request.path + request.body);
         })},
    };
    auto started = HttpListener::start(address_, std::move(routes), limits, drops_);
    ASSERT_TRUE(started.ok()) << started.status();
    listener_ = *std::move(started);
  }
  HttpClient connect() { return HttpClient(address_); }
  // After the client has been accepted.
  bool waits(size_t replies) {
    return wait_for([&] {
      const MutexLock lock(mutex_);
      return replies_.size() == replies;
    });
  }
  HttpReply take_reply(size_t index) {
    const MutexLock lock(mutex_);
    return replies_[index];
  }

  HostPort address_{"127.0.0.1", 0};
  DropCounters drops_;
  Mutex mutex_;
  std::vector<HttpReply> replies_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpListener> listener_;
};

TEST_F(HttpListenerTest, AnswersAndCloses) {
  start();

  EXPECT_EQ(connect().ask(kGet),
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
            "Content-Length: 6\r\n\r\nsmall\n");
  EXPECT_THAT(connect().ask("HEAD /small HTTP/1.0\r\n\r\n"),
              AllOf(HasSubstr("Content-Length: 6\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_THAT(connect().ask("POST /echo/a HTTP/1.1\r\nContent-Length: 1\r\n\r\nb"),
              AllOf(StartsWith("HTTP/1.1 202 Accepted\r\n"), EndsWith("127.0.0.1/echo/ab")));
  EXPECT_THAT(connect().ask("PUT /small HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(connect().ask("GET /throws HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 500 "));
}

TEST_F(HttpListenerTest, SendsLargeAnswersWhole) {
  start();

  EXPECT_EQ(connect().ask(kGetLarge).size(), connect().ask(kGetShared).size());
  EXPECT_THAT(connect().ask(kGetLarge), SizeIs(::testing::Gt(kLargeBytes)));
}

TEST_F(HttpListenerTest, AnswersAClientThatHasEndedItsSide) {
  start();
  HttpClient client = connect();
  (void)client.send(kGetLater);
  (void)shutdown(client.fd(), SHUT_WR);
  ASSERT_TRUE(waits(1));

  take_reply(0)(make_text_response(200, "later\n"));

  EXPECT_THAT(client.take_all(), EndsWith("later\n"));
}

TEST_F(HttpListenerTest, IgnoresRanges) {
  start();

  const std::string answer = connect().ask("GET /small HTTP/1.1\r\nRange: bytes=0-,0-,0-\r\n\r\n");

  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\nsmall\n")));
}

TEST_F(HttpListenerTest, AsksForABodyThatTheClientHoldsBack) {
  start();
  HttpClient client = connect();
  (void)client.send("POST /echo/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
  char asked[64] = "";

  ASSERT_GT(recv(client.fd(), asked, sizeof asked - 1, 0), 0);

  EXPECT_STREQ(asked, "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_THAT(client.ask("b"), EndsWith("/echo/b"));
}

TEST_F(HttpListenerTest, RefusesWhatIsTooLargeAndSaysWhy) {
  start();
  const std::string large(200'000, 'a');

  EXPECT_THAT(connect().ask("GET / HTTP/1.1\r\na: " + large), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(connect().ask("POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + large),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(
      connect().ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n30000\r\n" + large),
      StartsWith("HTTP/1.1 413 "));
  EXPECT_EQ(drops_.get(DropCause::kHttpRequestTooLarge), 3u);
}

TEST_F(HttpListenerTest, ClosesOnAClientThatSendsWithoutEnd) {
  start();
  HttpClient client = connect();
  (void)client.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");

  while (client.send("1000\r\n" + std::string(0x1000, 'a') + "\r\n")) continue;

  EXPECT_EQ(drops_.get(DropCause::kHttpRequestTooLarge), 1u);
}

TEST_F(HttpListenerTest, RefusesWhatIsNoRequest) {
  start();

  EXPECT_THAT(connect().ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(drops_.get(DropCause::kHttpMalformed), 1u);
}

TEST_F(HttpListenerTest, ClosesAfterTheTimeForARequestHoweverItsBytesCome) {
  start({.request_time = milliseconds(100)});
  HttpClient silent = connect();
  HttpClient dripping = connect();

  while (dripping.send("a")) (void)poll(nullptr, 0, 5);

  EXPECT_EQ(silent.take_all(), "");
  EXPECT_TRUE(wait_for([&] { return drops_.get(DropCause::kHttpSilent) == 1; }));
  EXPECT_EQ(drops_.get(DropCause::kHttpRequestLate), 1u);
}

TEST_F(HttpListenerTest, ClosesAfterTheTimeForAnAnswer) {
  start({.answer_time = milliseconds(100)});
  HttpClient client = connect();
  (void)client.send(kGetLarge);

  EXPECT_TRUE(wait_for([&] { return drops_.get(DropCause::kHttpAnswerLate) == 1; }));
  EXPECT_LT(client.take_all().size(), kLargeBytes);
}

TEST_F(HttpListenerTest, ClosesTheIdlestConnectionOfAnAddressThatHasItsShare) {
  start({.connections_per_address = 3});
  HttpClient first = connect(), second = connect();
  HttpClient waiting = connect();
  (void)waiting.send(kGetLater);
  ASSERT_TRUE(waits(1));

  HttpClient fourth = connect();
  EXPECT_EQ(first.take_all(), "");  // closed
  HttpClient fifth = connect();
  EXPECT_EQ(second.take_all(), "");

  take_reply(0)(make_text_response(200, "later\n"));
  EXPECT_THAT(waiting.take_all(), EndsWith("later\n"));  // it waited for the server
  EXPECT_THAT(fourth.ask(kGet), EndsWith("small\n"));
  EXPECT_THAT(fifth.ask(kGet), EndsWith("small\n"));
  EXPECT_EQ(drops_.get(DropCause::kHttpConnectionsFull), 2u);
}

TEST_F(HttpListenerTest, ClosesOneOfTheAddressThatHasMostWhenAllPlacesAreTaken) {
  start({.connections = 2});
  HttpClient first = connect(), second = connect();

  HttpClient third = connect();

  EXPECT_EQ(first.take_all(), "");
  EXPECT_THAT(second.ask(kGet), EndsWith("small\n"));
  EXPECT_THAT(third.ask(kGet), EndsWith("small\n"));
  EXPECT_EQ(drops_.get(DropCause::kHttpConnectionsFull), 1u);
}

TEST_F(HttpListenerTest, ServesAmongMoreSilentClientsThanItHolds) {
  start({.connections = 20});
  std::vector<HttpClient> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect());

  EXPECT_THAT(connect().ask(kGet), EndsWith("small\n"));
  EXPECT_GE(drops_.get(DropCause::kHttpConnectionsFull), 80u);
}

TEST_F(HttpListenerTest, ServesAmongMoreSlowReadersThanItHolds) {
  start({.connections = 20});
  std::vector<HttpClient> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(connect());
    (void)slow.back().send(kGetShared);
  }

  EXPECT_THAT(connect().ask(kGet), EndsWith("small\n"));
}

TEST_F(HttpListenerTest, CutsOffTheSlowestReadersOfTooManyBytes) {
  start({.answer_bytes = 2 * kLargeBytes});
  HttpClient slow[4] = {connect(), connect(), connect(), connect()};
  for (HttpClient& client : slow) {
    (void)client.send(kGetLarge);
    char byte = 0;
    ASSERT_EQ(recv(client.fd(), &byte, 1, 0), 1);  // one after the other
  }

  EXPECT_TRUE(wait_for([&] { return drops_.get(DropCause::kHttpAnswersFull) == 2; }));
  EXPECT_LT(slow[0].take_all().size(), kLargeBytes);
  EXPECT_LT(slow[1].take_all().size(), kLargeBytes);
  EXPECT_GT(slow[2].take_all().size(), kLargeBytes);
  EXPECT_GT(slow[3].take_all().size(), kLargeBytes);
}

TEST_F(HttpListenerTest, CountsOnceWhatManyRead) {
  start({.answer_bytes = kLargeBytes});
  HttpClient slow[3] = {connect(), connect(), connect()};
  for (HttpClient& client : slow) (void)client.send(kGetShared);

  for (HttpClient& client : slow) EXPECT_GT(client.take_all().size(), kLargeBytes);
  EXPECT_EQ(drops_.get(DropCause::kHttpAnswersFull), 0u);
}

TEST_F(HttpListenerTest, LetsAnswersComeAfterTheClientHasGone) {
  start();
  {
    HttpClient client = connect();
    (void)client.send(kGetLater);
    ASSERT_TRUE(waits(1));
  }

  take_reply(0)(make_text_response(200, "late\n"));
  take_reply(0)(make_text_response(200, "twice\n"));

  EXPECT_THAT(connect().ask(kGet), EndsWith("small\n"));
}

TEST_F(HttpListenerTest, LetsAnswersComeAfterItsStop) {
  start();
  HttpClient client = connect();
  (void)client.send(kGetLater);
  ASSERT_TRUE(waits(1));

  listener_->stop();
  listener_.reset();
  take_reply(0)(make_text_response(200, "late\n"));

  EXPECT_EQ(client.take_all(), "");
}

TEST(HttpPeerTest, TakesAddressesOfOneClientForOne) {
  const auto read = [](const char* text) {
    sockaddr_storage address{};
    if (auto& v4 = reinterpret_cast<sockaddr_in&>(address);
        inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
    } else {
      auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
      v6.sin6_family = AF_INET6;
      EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    }
    const HttpPeer peer = read_peer(address);
    EXPECT_EQ(peer.address, text);
    return peer.share;
  };

  EXPECT_EQ(read("127.0.0.1"), read("127.9.8.7"));
  EXPECT_EQ(read("127.0.0.1"), read("::1"));
  EXPECT_EQ(read("127.0.0.1"), read("::ffff:127.0.0.2"));
  EXPECT_EQ(read("10.0.0.7"), read("::ffff:10.0.0.7"));
  EXPECT_NE(read("10.0.0.7"), read("10.0.0.8"));
  EXPECT_EQ(read("2001:db8:0:1::7"), read("2001:db8:0:1:8::9"));
  EXPECT_NE(read("2001:db8:0:1::7"), read("2001:db8:0:2::7"));
}

}  // namespace
}  // namespace gpuperf
