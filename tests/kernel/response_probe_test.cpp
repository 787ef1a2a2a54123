// Parts of HTTP responses, as the kernel side tells them.

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/kernel/probe_fixture.h"
#include "tests/tcp_pair.h"

namespace gpuperf {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint32_t kBegins = GPUPERF_RESPONSE_BEGINS, kHead = GPUPERF_RESPONSE_HEAD,
                   kEnds = GPUPERF_RESPONSE_ENDS, kClosed = GPUPERF_RESPONSE_CLOSED;
constexpr std::string_view kRequest = "POST /v1/completions HTTP/1.1\r\nhost: h\r\n\r\n";
constexpr std::string_view kHeaders = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
constexpr std::string_view kToken = "9\r\ndata: a\n\n\r\n";
constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Both ends of a TCP connection, in this process; writes of one are read by the other at once.
class Connection {
 public:
  Connection() { EXPECT_GE(server_.get(), 0) << strerror(errno); }
  void ask(std::string_view text = kRequest) { pass(client_, server_, {text}); }
  void answer(std::string_view text) { pass(server_, client_, {text}); }
  void answer_in_pieces(const std::vector<std::string_view>& pieces) {
    pass(server_, client_, pieces);
  }
  void close_server() { server_.reset(); }

 private:
  static void pass(const Fd& from, const Fd& to, const std::vector<std::string_view>& pieces) {
    std::vector<iovec> memory;
    size_t total = 0;
    for (const std::string_view piece : pieces) {
      memory.push_back({const_cast<char*>(piece.data()), piece.size()});
      total += piece.size();
    }
    const int count = static_cast<int>(memory.size());
    const ssize_t written = count == 1 ? write(from.get(), pieces[0].data(), total)
                                       : writev(from.get(), memory.data(), count);
    EXPECT_EQ(written, static_cast<ssize_t>(total));
    std::string text(total, 0);
    EXPECT_EQ(recv(to.get(), text.data(), total, MSG_WAITALL), static_cast<ssize_t>(total));
  }

  TcpPair pair_ = make_tcp_pair();
  Fd& client_ = pair_.client;
  Fd& server_ = pair_.server;
};

// Puts this process into a session of its own: what other programs of the one that started it write
// (tests that run beside this one do) is followed too.
void leave_session() {
  if (getsid(0) == getpid()) return;
  // The leader of a group may not leave its session: as one of its parent's group it may.
  if (getpgrp() == getpid()) setpgid(0, getpgid(getppid()));
  ASSERT_EQ(setsid(), getpid()) << strerror(errno);
}

class ResponseProbeTest : public FunctionProbeTest {
 protected:
  void SetUp() override {
    FunctionProbeTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_NO_FATAL_FAILURE(leave_session());
    session_ = static_cast<uint32_t>(getsid(0));
    load({.functions = 8, .cells = 64, .follow_requests = true});
    ASSERT_TRUE(programs_->set_request_session(session_, true));
  }
  std::vector<gpuperf_response_part> take() { return drain<gpuperf_response_part>("report_ring"); }
  std::vector<uint32_t> take_flags() {
    std::vector<uint32_t> flags;
    for (const gpuperf_response_part& part : take()) flags.push_back(part.flags);
    return flags;
  }

  uint32_t session_ = 0;
  Connection connection_;
};

TEST_P(ResponseProbeTest, TellsEachPartOfAStream) {
  connection_.ask();
  connection_.answer(kHeaders);
  connection_.answer(kToken);
  connection_.answer_in_pieces({"9\r\n", "data: b\n\n", "\r\n"});
  connection_.answer(kLastChunk);

  const auto parts = take();
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].flags, kBegins | kHead);
  EXPECT_EQ(parts[0].bytes, kHeaders.size());
  EXPECT_EQ(parts[0].pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(parts[0].tid, static_cast<uint32_t>(gettid()));
  EXPECT_EQ(parts[0].session, session_);
  EXPECT_GT(parts[0].request_start_mono_ns, 0u);
  EXPECT_EQ(parts[0].request_start_mono_ns, parts[0].request_end_mono_ns);
  EXPECT_LT(parts[0].request_end_mono_ns, parts[0].mono_ns);
  EXPECT_EQ(parts[1].flags, 0u);
  EXPECT_EQ(parts[1].request_start_mono_ns, 0u);
  EXPECT_EQ(parts[1].bytes, kToken.size());
  EXPECT_EQ(parts[1].connection, parts[0].connection);
  EXPECT_EQ(parts[2].flags, 0u);
  EXPECT_EQ(parts[2].bytes, 14u);
  EXPECT_EQ(parts[3].flags, kEnds);
}

TEST_P(ResponseProbeTest, TellsTheEndInWhateverWriteItIs) {
  connection_.ask();
  connection_.answer(std::string(kHeaders) + std::string(kToken));  // no headers alone
  connection_.answer(std::string(kToken) + std::string(kLastChunk));
  connection_.answer(kToken);  // after the end: nobody's
  connection_.ask();
  connection_.answer_in_pieces({kHeaders, kToken, kLastChunk});

  EXPECT_THAT(take_flags(), ElementsAre(kBegins, kEnds, kBegins | kEnds));
}

TEST_P(ResponseProbeTest, ARequestIsReadFromItsFirstByteToItsLast) {
  connection_.ask("POST / HTTP/1.1\r\n");
  usleep(2'000);
  connection_.ask("content-length: 3\r\n\r\n");
  connection_.answer("HTTP/1.1 100 Continue\r\n\r\n");  // not the answer
  usleep(2'000);
  connection_.ask("abc");
  connection_.answer("HTTP/1.0 404 Not Found\r\n\r\n");

  const auto parts = take();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_GT(parts[0].request_end_mono_ns, parts[0].request_start_mono_ns + 4'000'000);
}

TEST_P(ResponseProbeTest, TellsTheEndOfAConnectionWithinAResponse) {
  connection_.ask();
  connection_.answer(kHeaders);
  connection_.close_server();
  Connection ended;
  ended.ask();
  ended.answer(kHeaders);
  ended.answer(kLastChunk);
  ended.close_server();

  const auto parts = take();
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[1].flags, kClosed);
  EXPECT_EQ(parts[1].connection, parts[0].connection);
  EXPECT_EQ(parts[1].pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(parts[3].flags, kEnds);
}

TEST_P(ResponseProbeTest, WhatIsNoResponseIsNotTold) {
  connection_.ask();
  connection_.answer("SSH-2.0-OpenSSH_9.2p1\r\n");
  connection_.answer("HTTP/1.");
  Connection greeted;  // the server writes first
  greeted.answer(kHeaders);
  greeted.answer(kToken);

  EXPECT_THAT(take(), IsEmpty());
}

TEST_P(ResponseProbeTest, OtherSessionsAreNotWatched) {
  ASSERT_TRUE(programs_->set_request_session(session_, false));
  connection_.ask();
  connection_.answer(kHeaders);
  EXPECT_THAT(take(), IsEmpty());
}

TEST_P(ResponseProbeTest, LeavesRoomForOtherReportsAndCountsWhatIsMissing) {
  constexpr size_t kParts = 20'000;
  connection_.ask();
  connection_.answer(kHeaders);
  for (size_t i = 0; i < kParts; ++i) connection_.answer(kToken);

  const uint64_t lost = programs_->losses()[GPUPERF_LOSS_RESPONSES_FULL];
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(take().size(), kParts + 1 - lost);
}

INSTANTIATE_TEST_SUITE_P(Kernel, ResponseProbeTest, testing::Values(Mechanism::kPerf));

}  // namespace
}  // namespace gpuperf
