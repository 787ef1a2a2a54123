#include "daemon/rpc/peer_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/rpc/http2_text.h"
#include "tests/unit/rpc/unix_peer.h"

namespace gpuperf {
namespace {

using Frame = Http2Frame;
using testing::make_frame;
using testing::wait_for_end;

const std::string kHello = std::string(testing::kHttp2Preface) + make_frame(Frame::kSettings, 0, 0);
const std::string kPing = make_frame(Frame::kPing, 0, 0, "12345678");

// A client of the relay, and the end that gRPC would have.
struct Ends {
  Fd client;
  Fd server;
};

class PeerRelayTest : public ::testing::Test {
 protected:
  PeerRelayTest() {
    auto started = PeerRelay::start(drops_);
    EXPECT_TRUE(started.ok()) << started.status();
    relay_ = *std::move(started);
  }
  Ends connect(uid_t uid = 1000) {
    int pair[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    Result<Fd> server = relay_->post_connection(Fd(pair[1]), uid);
    EXPECT_TRUE(server.ok()) << server.status();
    EXPECT_EQ(fcntl(server->get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    EXPECT_EQ(fcntl(server->get(), F_GETFD), FD_CLOEXEC);
    return {Fd(pair[0]), *std::move(server)};
  }
  static void say(const Fd& end, const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      pollfd writable = {end.get(), POLLOUT, 0};
      ASSERT_EQ(poll(&writable, 1, 30'000), 1);
      const ssize_t count =
          send(end.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      ASSERT_GT(count, 0) << std::strerror(errno);
      sent += static_cast<size_t>(count);
    }
  }
  // So many bytes; fewer where the other side closes or says nothing for 30 s.
  static std::string hear(const Fd& end, size_t bytes) {
    std::string heard(bytes, '\0');
    size_t count = 0;
    while (count < bytes) {
      pollfd readable = {end.get(), POLLIN, 0};
      if (poll(&readable, 1, 30'000) != 1) break;
      const ssize_t more = recv(end.get(), heard.data() + count, bytes - count, MSG_DONTWAIT);
      if (more <= 0) break;
      count += static_cast<size_t>(more);
    }
    heard.resize(count);
    return heard;
  }
  // What comes until nothing has come for so long.
  static size_t hear_until_silent(const Fd& end, int silent_ms) {
    size_t count = 0;
    char room[65'536];
    for (;;) {
      pollfd readable = {end.get(), POLLIN, 0};
      if (poll(&readable, 1, silent_ms) != 1) return count;
      const ssize_t more = recv(end.get(), room, sizeof room, MSG_DONTWAIT);
      if (more <= 0) return count;
      count += static_cast<size_t>(more);
    }
  }

  DropCounters drops_;
  std::unique_ptr<PeerRelay> relay_;
};

TEST_F(PeerRelayTest, PassesBytesBothWays) {
  const Ends ends = connect();

  say(ends.client, kHello);
  say(ends.server, kPing);

  EXPECT_EQ(hear(ends.server, kHello.size()), kHello);
  EXPECT_EQ(hear(ends.client, kPing.size()), kPing);
}

TEST_F(PeerRelayTest, LosesNothingOfALongAnswerToASlowClient) {
  const Ends ends = connect();
  std::string answer;
  while (answer.size() < 4'000'000) {
    answer += make_frame(Frame::kData, 0, 1, std::string(16'384, static_cast<char>(answer.size())));
  }
  std::thread server([&] { say(ends.server, answer); });

  std::string heard;
  while (heard.size() < answer.size()) {
    const std::string more =
        hear(ends.client, std::min<size_t>(70'001, answer.size() - heard.size()));
    if (more.empty()) break;
    heard += more;
  }
  server.join();

  EXPECT_TRUE(heard == answer) << heard.size();
}

TEST_F(PeerRelayTest, TellsGrpcThatAClientSaysNothingMore) {
  const Ends ends = connect();
  say(ends.client, kHello);
  ASSERT_EQ(shutdown(ends.client.get(), SHUT_WR), 0);

  EXPECT_EQ(hear(ends.server, 1'000), kHello);
  EXPECT_TRUE(wait_for_end(ends.server));
  say(ends.server, kPing);

  EXPECT_EQ(hear(ends.client, kPing.size()), kPing) << "it still listens";
}

TEST_F(PeerRelayTest, EndsWhenAClientLeaves) {
  Ends ends = connect();
  say(ends.client, kHello);

  ends.client.reset();

  EXPECT_EQ(hear(ends.server, 1'000), kHello);
  EXPECT_TRUE(wait_for_end(ends.server));
}

TEST_F(PeerRelayTest, EndsWhenGrpcClosesAndPassesOnWhatItSaidLast) {
  Ends ends = connect();
  say(ends.client, kHello);

  say(ends.server, kPing);
  ends.server.reset();

  EXPECT_EQ(hear(ends.client, 1'000), kPing);
  EXPECT_TRUE(wait_for_end(ends.client));
}

TEST_F(PeerRelayTest, ClosesAndCountsMisuse) {
  const Ends ends = connect();
  const Ends other = connect();
  say(ends.client, kHello + make_frame(Frame::kContinuation, 0, 1, "h"));

  EXPECT_TRUE(wait_for_end(ends.client));
  EXPECT_TRUE(wait_for_end(ends.server));

  EXPECT_EQ(drops_.get(DropCause::kApiMisuse), 1u);
  say(other.client, kHello);
  EXPECT_EQ(hear(other.server, kHello.size()), kHello);
}

TEST_F(PeerRelayTest, MakesAUserWaitAndNobodyElse) {
  const Ends greedy = connect(1000);
  const Ends other = connect(1001);
  std::string calls;
  for (uint32_t stream = 1; stream < 600; stream += 2) {
    calls += make_frame(Frame::kHeaders, Frame::kEndHeaders, stream, "h") +
             make_frame(Frame::kReset, 0, stream, "1234");
  }
  say(greedy.client, kHello + calls);
  say(other.client, kHello);

  EXPECT_EQ(hear(other.server, kHello.size()), kHello);
  const std::string heard = hear(greedy.server, kHello.size() + calls.size());

  EXPECT_TRUE(heard == kHello + calls) << "it waits, and loses nothing";
  EXPECT_GT(drops_.get(DropCause::kApiThrottled), 0u);
  EXPECT_EQ(drops_.get(DropCause::kApiMisuse), 0u);
}

TEST_F(PeerRelayTest, RemembersAUserWhoConnectsAnew) {
  std::string calls = kHello;
  for (uint32_t stream = 1; stream < 2'000; stream += 2) {
    calls += make_frame(Frame::kHeaders, Frame::kEndHeaders, stream, "h") +
             make_frame(Frame::kReset, 0, stream, "1234");
  }
  Ends first = connect();
  say(first.client, calls);
  while (drops_.get(DropCause::kApiThrottled) == 0) std::this_thread::yield();
  first = {};
  const Ends second = connect();

  say(second.client, calls);

  while (drops_.get(DropCause::kApiThrottled) == 1) std::this_thread::yield();
  EXPECT_LT(hear_until_silent(second.server, 5), calls.size());
}

TEST_F(PeerRelayTest, DoesNotListenToAClientThatTakesNoAnswers) {
  const Ends ends = connect();
  testing::make_nonblocking(ends.server);
  const std::string piece(65'536, '\0');  // frames without payload
  size_t waiting = 0;
  for (;;) {  // until it is full all the way
    const ssize_t count = send(ends.server.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (count > 0) {
      waiting += static_cast<size_t>(count);
      continue;
    }
    pollfd writable = {ends.server.get(), POLLOUT, 0};
    if (poll(&writable, 1, 200) == 0) break;
  }
  say(ends.client, kHello);

  EXPECT_EQ(hear_until_silent(ends.server, 200), 0u);
  EXPECT_LT(waiting, 2'000'000u) << "bounded, too";

  EXPECT_EQ(hear(ends.client, waiting).size(), waiting);
  EXPECT_EQ(hear(ends.server, kHello.size()), kHello);
}

TEST_F(PeerRelayTest, PassesOnWhatWasSaidLastAndEndsWhenStopped) {
  Ends closed = connect();
  const Ends open = connect();
  say(closed.server, kPing);
  closed.server.reset();

  relay_.reset();

  EXPECT_EQ(hear(closed.client, 1'000), kPing);
  EXPECT_TRUE(wait_for_end(closed.client));
  EXPECT_TRUE(wait_for_end(open.client));
  EXPECT_TRUE(wait_for_end(open.server));
}

}  // namespace
}  // namespace gpuperf
