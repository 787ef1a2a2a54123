#include "daemon/rpc/frame_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/rpc/http2_text.h"

namespace gpuperf {
namespace {

using Frame = Http2Frame;
using testing::make_frame;
using testing::make_frame_header;

constexpr int64_t kSecondNs = 1'000'000'000;

std::string make_call(uint32_t stream, size_t header_bytes = 10) {
  return make_frame(Frame::kHeaders, Frame::kEndHeaders, stream, std::string(header_bytes, 'h'));
}
std::string make_reset(uint32_t stream) {
  return make_frame(Frame::kReset, 0, stream, std::string(4, '\0'));
}
std::string make_data(uint32_t stream, size_t bytes, uint8_t flags = 0) {
  return make_frame(Frame::kData, flags, stream, std::string(bytes, 'd'));
}

class FrameGuardTest : public ::testing::Test {
 protected:
  FrameGuardTest() { say(std::string(testing::kHttp2Preface)); }

  // What is wrong with what the client says; the time is what it takes to say it.
  std::string say(const std::string& bytes) { return say(*guard_, bytes); }
  std::string say(FrameGuard& guard, const std::string& bytes) {
    std::span<const char> rest(bytes);
    while (!rest.empty()) {
      now_ns_ = std::max(now_ns_, guard.ready_mono_ns());
      rest = rest.subspan(guard.admit(rest, now_ns_));
      if (!guard.breach().empty()) return std::string(guard.breach());
    }
    return "";
  }
  void answer(const std::string& bytes) { guard_->note_answer(bytes); }
  std::unique_ptr<FrameGuard> connect() {
    auto guard = std::make_unique<FrameGuard>(budget_);
    say(*guard, std::string(testing::kHttp2Preface));
    return guard;
  }

  // How many such frames a new connection may send at once.
  size_t count_until_waiting(const std::string& frame) {
    now_ns_ = std::max(now_ns_, budget_->work.ready_mono_ns()) + kSecondNs;
    std::string much;
    while (much.size() < 1'000'000) much += frame;
    const auto guard = connect();
    return guard->admit(much, now_ns_) / frame.size();
  }

  int64_t now_ns_ = 1'000 * kSecondNs;
  const std::shared_ptr<PeerBudget> budget_ = std::make_shared<PeerBudget>();
  std::optional<FrameGuard> guard_{budget_};
};

TEST_F(FrameGuardTest, PassesWhatAClientSays) {
  EXPECT_EQ(say(make_frame(Frame::kSettings, 0, 0, std::string(36, '\0'))), "");
  EXPECT_EQ(say(make_frame(Frame::kWindowUpdate, 0, 0, std::string(4, '\1'))), "");
  EXPECT_EQ(say(make_call(1)), "");
  EXPECT_EQ(say(make_data(1, 16'384, Frame::kEndStream)), "");
  EXPECT_EQ(say(make_frame(Frame::kPing, 0, 0, std::string(8, 'p'))), "");
  EXPECT_EQ(say(make_frame(0xbe, 0xff, 7, "of a later standard")), "");

  EXPECT_EQ(budget_->open_calls, 1u);
}

TEST_F(FrameGuardTest, SeesTheSameInPiecesOfAnySize) {
  const std::string all = make_call(1) + make_data(1, 300) + make_call(3) + make_reset(1);

  for (const char byte : all) EXPECT_EQ(say(std::string(1, byte)), "");

  EXPECT_EQ(budget_->open_calls, 1u);
}

TEST_F(FrameGuardTest, RefusesWhatIsNotHttp2) {
  for (const char* text : {"GET / HTTP/1.1\r\n", "PRI * HTTP/2.1", "x", "\x16\x03\x01"}) {
    FrameGuard guard(budget_);
    EXPECT_EQ(say(guard, text), "not HTTP/2") << text;
  }
}

TEST_F(FrameGuardTest, RefusesFramesThatAreTooLargeBeforeTheirPayload) {
  EXPECT_EQ(say(make_frame_header({.payload_bytes = 16'385, .type = Frame::kData, .stream = 1})),
            "frame too large");
}

TEST_F(FrameGuardTest, BoundsTheHeadersOfACall) {
  EXPECT_EQ(say(make_call(1, 16'384)), "");

  EXPECT_EQ(say(make_frame(Frame::kHeaders, 0, 3, std::string(16'000, 'h'))), "");
  EXPECT_EQ(say(make_frame(Frame::kContinuation, 0, 3, std::string(384, 'h'))), "");
  EXPECT_EQ(say(make_frame(Frame::kContinuation, 0, 3, "h")), "headers too large");
}

TEST_F(FrameGuardTest, RefusesAnythingBetweenTheHeadersOfACall) {
  const std::string begun = make_frame(Frame::kHeaders, 0, 1, "h");
  for (const std::string& next :
       {make_call(3), make_data(1, 1), make_frame(Frame::kContinuation, 0, 3, "h")}) {
    const auto guard = connect();
    EXPECT_EQ(say(*guard, begun + next), "headers not contiguous");
  }
  EXPECT_EQ(say(make_frame(Frame::kContinuation, 0, 1, "h")), "headers not contiguous");
}

TEST_F(FrameGuardTest, RefusesWhatOnlyAServerSays) {
  EXPECT_EQ(say(*connect(), make_call(2)), "not a client's stream");
  EXPECT_EQ(say(*connect(), make_frame(Frame::kPushPromise, 0, 1, "p")), "push from a client");
}

TEST_F(FrameGuardTest, BoundsSettings) {
  EXPECT_EQ(say(make_frame(Frame::kSettings, 0, 0, std::string(198, '\0'))), "too many settings");
}

TEST_F(FrameGuardTest, BoundsTheOpenCallsOfAConnection) {
  for (uint32_t call = 0; call < 100; ++call) ASSERT_EQ(say(make_call(2 * call + 1)), "");
  answer(make_frame(Frame::kHeaders, Frame::kEndHeaders | Frame::kEndStream, 1, "trailers"));
  answer(make_data(3, 10, Frame::kEndStream));
  answer(make_reset(5));
  EXPECT_EQ(say(make_reset(7)), "");

  for (uint32_t call = 100; call < 104; ++call) EXPECT_EQ(say(make_call(2 * call + 1)), "");

  EXPECT_EQ(say(make_call(209)), "too many calls on a connection");
}

TEST_F(FrameGuardTest, BoundsTheOpenCallsOfAUser) {
  std::vector<std::unique_ptr<FrameGuard>> connections;
  for (uint32_t call = 0; call < PeerBudget::kMaxOpenCalls; ++call) {
    if (call % 50 == 0) connections.push_back(connect());
    ASSERT_EQ(say(*connections.back(), make_call(2 * call + 1)), "");
  }
  EXPECT_EQ(say(*connect(), make_call(1)), "too many calls of a user");

  connections.clear();

  EXPECT_EQ(budget_->open_calls, 0u);
  EXPECT_EQ(say(make_call(1)), "");
}

TEST_F(FrameGuardTest, BoundsTheRequestsOfOpenCalls) {
  const std::string piece = make_data(1, 16'384);
  ASSERT_EQ(say(make_call(1)), "");
  for (size_t i = 0; i < PeerBudget::kMaxRequestBytes / 16'384; ++i) ASSERT_EQ(say(piece), "");
  answer(make_reset(1));
  EXPECT_EQ(budget_->request_bytes, 0u);
  EXPECT_EQ(say(piece), "") << "it has ended: what still comes is passed over";

  ASSERT_EQ(say(make_call(3)), "");
  for (size_t i = 0; i < PeerBudget::kMaxRequestBytes / 16'384; ++i) {
    ASSERT_EQ(say(make_data(3, 16'384)), "");
  }
  EXPECT_EQ(say(make_data(3, 1)), "requests too large");
}

TEST_F(FrameGuardTest, CountsNoCallTwice) {
  EXPECT_EQ(say(make_call(1) + make_call(1)), "");  // the second are trailers
  EXPECT_EQ(budget_->open_calls, 1u);

  EXPECT_EQ(say(make_reset(1) + make_reset(1)), "");
  answer(make_reset(1));

  EXPECT_EQ(budget_->open_calls, 0u);
}

TEST_F(FrameGuardTest, LetsAUserGiveUpTwoHundredCallsPerSecond) {
  std::string calls;
  for (uint32_t call = 0; call < 10'000; ++call)
    calls += make_call(2 * call + 1) + make_reset(2 * call + 1);
  const size_t call_bytes = make_call(1).size() + make_reset(1).size();
  now_ns_ += kSecondNs;
  const auto other = connect();

  const size_t admitted = guard_->admit(calls, now_ns_);
  EXPECT_NEAR(admitted / call_bytes, 200, 2);
  EXPECT_EQ(other->admit(calls, now_ns_), 0u) << "the same user's";
  EXPECT_GT(guard_->ready_mono_ns(), now_ns_);

  now_ns_ += kSecondNs / 10;
  EXPECT_NEAR(guard_->admit(std::span(calls).subspan(admitted), now_ns_) / call_bytes, 20, 2);
}

TEST_F(FrameGuardTest, LetsAUserSendTwentyThousandSmallFramesPerSecond) {
  EXPECT_NEAR(count_until_waiting(make_frame(Frame::kWindowUpdate, 0, 0, "1234")), 20'000, 2);
  EXPECT_NEAR(count_until_waiting(make_frame(Frame::kSettings, 0, 0)), 1'000, 2);
  EXPECT_NEAR(count_until_waiting(make_frame(Frame::kPing, 0, 0, "12345678")), 100, 2);
  EXPECT_NEAR(count_until_waiting(make_frame(Frame::kPing, Frame::kAck, 0, "12345678")), 20'000, 2);
}

TEST_F(FrameGuardTest, LetsAClientPingForTheDataItGets) {
  const std::string ping = make_frame(Frame::kPing, 0, 0, "12345678");
  std::string pings;
  for (int i = 0; i < 1'000; ++i) pings += ping;
  for (int i = 0; i < 100; ++i) answer(make_data(1, 1'000));
  now_ns_ += kSecondNs;

  EXPECT_NEAR(guard_->admit(pings, now_ns_) / ping.size(), 116, 2);
}

}  // namespace
}  // namespace gpuperf
