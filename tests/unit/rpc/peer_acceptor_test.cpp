#include "daemon/rpc/peer_acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <mutex>

#include "daemon/base/unix_socket.h"
#include "tests/unit/rpc/rpc_fixture.h"
#include "tests/unit/rpc/unix_peer.h"

namespace gpuperf {
namespace {

using testing::connect_as_nobody;
using testing::connect_unix;
using testing::is_open;
using testing::wait_for_end;

constexpr std::chrono::hours kLong{1};  // longer than any test

class PeerAcceptorTest : public ::testing::Test {
 protected:
  void start(PeerLimits limits) {
    auto listening = listen_on_unix_socket(path_);
    ASSERT_TRUE(listening.ok()) << listening.status();
    auto started = PeerAcceptor::start(*std::move(listening), limits, drops_,
                                       [this](Fd connection, uid_t uid) {
                                         const std::lock_guard lock(mutex_);
                                         taken_.emplace_back(std::move(connection), uid);
                                         changed_.notify_all();
                                       });
    ASSERT_TRUE(started.ok()) << started.status();
    acceptor_ = *std::move(started);
  }
  Fd speak(Fd connection) {
    EXPECT_EQ(send(connection.get(), "x", 1, MSG_NOSIGNAL), 1);
    return connection;
  }
  // A connection that has been handed on.
  Fd connect_and_wait() {
    const size_t before = count_taken();
    Fd connection = speak(connect_unix(path_));
    wait_for_taken(before + 1);
    return connection;
  }
  size_t count_taken() {
    const std::lock_guard lock(mutex_);
    return taken_.size();
  }
  void wait_for_taken(size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return taken_.size() >= count; }));
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "api.sock";
  DropCounters drops_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<Fd, uid_t>> taken_;  // guarded by mutex_
  std::unique_ptr<PeerAcceptor> acceptor_;   // last: it uses all of the above
};

TEST_F(PeerAcceptorTest, SaysWhoConnected) {
  start({.silence = kLong});

  const Fd client = connect_and_wait();

  EXPECT_EQ(taken_[0].second, geteuid());
  char byte = 0;
  EXPECT_EQ(recv(taken_[0].first.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x') << "what the peer said is for whoever takes the connection";
  EXPECT_EQ(recv(taken_[0].first.get(), &byte, 1, 0), -1) << "must not block";
}

TEST_F(PeerAcceptorTest, BelievesTheKernelAboutAChildThatIsNobody) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  start({.silence = kLong});
  ASSERT_EQ(chmod((folder_ / "").c_str(), 0711), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);

  const Fd client = speak(connect_as_nobody(path_));
  wait_for_taken(1);

  EXPECT_EQ(taken_[0].second, testing::kNobody);
}

TEST_F(PeerAcceptorTest, ClosesWhoSaysNothing) {
  start({.silence = std::chrono::milliseconds(1)});

  EXPECT_TRUE(wait_for_end(connect_unix(path_)));

  EXPECT_EQ(count_taken(), 0u);
}

TEST_F(PeerAcceptorTest, HandsOnNobodyWhoOnlyLooks) {
  start({.silence = kLong});

  for (int i = 0; i < 300; ++i) connect_unix(path_).reset();
  const Fd client = connect_and_wait();

  EXPECT_EQ(count_taken(), 1u);
  EXPECT_EQ(drops_.get(DropCause::kApiConnectionsFull), 0u);
}

TEST_F(PeerAcceptorTest, ClosesAndCountsConnectionsBeyondTheBound) {
  start({.connections = 3, .kept_for_root = 0, .silence = kLong});
  const Fd first = connect_and_wait();
  const Fd second = connect_and_wait();
  const Fd third = connect_and_wait();

  EXPECT_TRUE(wait_for_end(connect_unix(path_)));
  EXPECT_TRUE(wait_for_end(connect_unix(path_)));

  EXPECT_EQ(drops_.get(DropCause::kApiConnectionsFull), 2u);
  EXPECT_TRUE(is_open(first) && is_open(second) && is_open(third));
}

TEST_F(PeerAcceptorTest, HasAPlaceAgainWhenEitherSideIsDone) {
  start({.connections = 1, .kept_for_root = 0, .silence = kLong});
  for (int i = 0; i < 10; ++i) {
    Fd client = connect_and_wait();
    if (i % 2 == 0) {
      client.reset();
    } else {  // as gRPC ends a connection: shut down, then closed
      ASSERT_EQ(shutdown(taken_.back().first.get(), SHUT_RDWR), 0);
      taken_.back().first.reset();
    }
  }

  EXPECT_EQ(drops_.get(DropCause::kApiConnectionsFull), 0u);
}

TEST_F(PeerAcceptorTest, KeepsPlacesForRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be root and somebody else";
  start({.connections = 2, .kept_for_root = 1, .silence = kLong});
  ASSERT_EQ(chmod((folder_ / "").c_str(), 0711), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);

  const Fd nobody = speak(connect_as_nobody(path_));
  wait_for_taken(1);
  EXPECT_TRUE(wait_for_end(connect_as_nobody(path_)));
  const Fd root = connect_and_wait();

  EXPECT_EQ(taken_[1].second, 0u);
  EXPECT_EQ(drops_.get(DropCause::kApiConnectionsFull), 1u);
}

TEST_F(PeerAcceptorTest, LeavesPlacesToOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two other users";
  start({.connections = 3, .kept_for_root = 0, .per_user = 2, .silence = kLong});
  ASSERT_EQ(chmod((folder_ / "").c_str(), 0711), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);

  const Fd first = speak(connect_as_nobody(path_));
  const Fd second = speak(connect_as_nobody(path_));
  wait_for_taken(2);
  EXPECT_TRUE(wait_for_end(connect_as_nobody(path_)));
  const Fd other = speak(testing::connect_as(path_, 1));
  wait_for_taken(3);

  EXPECT_EQ(taken_[2].second, 1u);
  EXPECT_EQ(drops_.get(DropCause::kApiConnectionsFull), 1u);
}

TEST_F(PeerAcceptorTest, LeavesConnectionsOpenThatItHandedOn) {
  start({.silence = kLong});
  const Fd spoken = connect_and_wait();
  const Fd silent = connect_unix(path_);

  acceptor_.reset();

  EXPECT_TRUE(is_open(spoken));
  EXPECT_TRUE(wait_for_end(silent));
}

}  // namespace
}  // namespace gpuperf
