#include "daemon/otlp/sender.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include "google/rpc/retry_info.pb.h"
#include "tests/unit/otlp/fake_receiver.h"

namespace gpuperf::otlp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::FakeReceiver;
using Names = std::vector<std::string>;

// A request with one span.
Request make_request(const std::string& name, size_t items = 1) {
  FakeReceiver::TraceRequest request;
  request.add_resource_spans()->add_scope_spans()->add_spans()->set_name(name);
  return {.bytes = request.SerializeAsString(), .items = items};
}

grpc::Status away() { return {grpc::StatusCode::UNAVAILABLE, "later"}; }

class OtlpSenderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Sender> make_sender(int port, size_t max_queued_bytes = 1 << 20,
                                      milliseconds timeout = milliseconds(30'000)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return std::make_unique<Sender>(
        Sender::Options{
            .method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            .channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                                 grpc::InsecureChannelCredentials(), arguments),
            .headers = {{"x-tenant", "gpu"}},
            .timeout = timeout,
            .max_queued_bytes = max_queued_bytes,
            .retry = {.first = milliseconds(10), .longest = milliseconds(50)}},
        drops_);
  }
  static void finish(std::unique_ptr<Sender> sender) {
    sender->stop_by(steady_clock::now() + std::chrono::seconds(30));
    sender.reset();
  }

  DropCounters drops_;
};

TEST_F(OtlpSenderTest, DeliversInOrderWithItsHeaders) {
  FakeReceiver receiver;
  const auto sender = make_sender(receiver.port());

  for (const char* name : {"a", "b", "c"}) sender->post(make_request(name));

  EXPECT_EQ(receiver.wait_for_taken(3), (Names{"a", "b", "c"}));
  EXPECT_EQ(receiver.tenant(), "gpu");
}

TEST_F(OtlpSenderTest, DeliversEachRequestOnceThroughRetries) {
  FakeReceiver receiver;
  receiver.answer({away(), away(), grpc::Status::OK, away()});
  auto sender = make_sender(receiver.port());

  for (const char* name : {"a", "b", "c"}) sender->post(make_request(name));
  const Names taken = receiver.wait_for_taken(3);
  finish(std::move(sender));

  EXPECT_EQ(taken, (Names{"a", "b", "c"}));
  EXPECT_EQ(receiver.wait_for_asked(6), 6u);
  EXPECT_EQ(drops_.get(DropCause::kOtlpRefused), 0u);
  EXPECT_EQ(drops_.get(DropCause::kOtlpStopped), 0u);
}

TEST_F(OtlpSenderTest, KeepsThePauseOfAReceiverThatThrottles) {
  FakeReceiver receiver;
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_nanos(300'000'000);
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  receiver.answer(
      {{grpc::StatusCode::RESOURCE_EXHAUSTED, "too much", details.SerializeAsString()}});
  const auto sender = make_sender(receiver.port());
  const auto begun = steady_clock::now();

  sender->post(make_request("a"));

  EXPECT_EQ(receiver.wait_for_taken(1), Names{"a"});
  EXPECT_GE(steady_clock::now() - begun, milliseconds(300));
}

TEST_F(OtlpSenderTest, CountsWhatIsRefusedForGoodAndGoesOn) {
  FakeReceiver receiver;
  receiver.answer({{grpc::StatusCode::INVALID_ARGUMENT, "no such field"}});
  const auto sender = make_sender(receiver.port());

  sender->post(make_request("a", 5));
  sender->post(make_request("b"));

  EXPECT_EQ(receiver.wait_for_taken(1), Names{"b"});
  EXPECT_EQ(drops_.get(DropCause::kOtlpRefused), 5u);
}

TEST_F(OtlpSenderTest, CountsWhatIsRejectedOutOfARequestThatIsTaken) {
  FakeReceiver receiver;
  receiver.reject_spans(2);
  auto sender = make_sender(receiver.port());

  sender->post(make_request("a", 3));
  receiver.wait_for_taken(1);
  // The answer to the first has come when the second is asked.
  sender->post(make_request("b", 3));
  receiver.wait_for_taken(2);
  sender->post(make_request("c", 3));
  receiver.wait_for_taken(3);

  EXPECT_GE(drops_.get(DropCause::kOtlpRejected), 4u);
  EXPECT_GE(sender->delivered_count(), 2u);
  EXPECT_EQ(sender->find_fault(), "rejected 2: too old");
}

TEST_F(OtlpSenderTest, WaitsForAReceiverThatIsNotThereYetAndSaysSo) {
  int port = 0;
  { port = FakeReceiver().port(); }
  const auto sender = make_sender(port);

  sender->post(make_request("a"));
  for (int i = 0; i < 3'000 && sender->find_fault().empty(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(sender->find_fault().starts_with("code 14")) << sender->find_fault();
  FakeReceiver receiver(port);

  EXPECT_EQ(receiver.wait_for_taken(1), Names{"a"});
}

TEST_F(OtlpSenderTest, AsksAgainWhenTheReceiverTakesTooLong) {
  FakeReceiver receiver;
  receiver.hold();
  const auto sender = make_sender(receiver.port(), 1 << 20, milliseconds(200));

  sender->post(make_request("a"));

  EXPECT_GE(receiver.wait_for_asked(2), 2u);
  EXPECT_TRUE(sender->find_fault().starts_with("code 4")) << sender->find_fault();
}

TEST_F(OtlpSenderTest, DropsTheOldestThatWaitsWhenTheQueueIsFullAndCountsIt) {
  FakeReceiver receiver;
  receiver.hold();
  const Request request = make_request("0", 10);
  const auto sender = make_sender(receiver.port(), 3 * request.bytes.size());
  sender->post(make_request("first"));
  ASSERT_EQ(receiver.wait_for_asked(1), 1u);  // it is on its way: nothing can drop it

  for (const char* name : {"1", "2", "3", "4", "5"}) sender->post(make_request(name, 10));
  receiver.release();

  EXPECT_EQ(receiver.wait_for_taken(4), (Names{"first", "3", "4", "5"}));
  EXPECT_EQ(drops_.get(DropCause::kOtlpQueueFull), 20u);
}

TEST_F(OtlpSenderTest, DeliversWhatWaitsWhenItIsStopped) {
  FakeReceiver receiver;
  receiver.answer({away()});
  auto sender = make_sender(receiver.port());

  for (const char* name : {"a", "b", "c"}) sender->post(make_request(name));
  finish(std::move(sender));

  EXPECT_EQ(receiver.wait_for_taken(3), (Names{"a", "b", "c"}));
  EXPECT_EQ(drops_.get(DropCause::kOtlpStopped), 0u);
}

TEST_F(OtlpSenderTest, GivesUpAtTheDeadlineOfTheStopAndCountsWhatIsLeft) {
  FakeReceiver receiver;
  receiver.hold();
  auto sender = make_sender(receiver.port());
  sender->post(make_request("a", 2));
  ASSERT_EQ(receiver.wait_for_asked(1), 1u);
  sender->post(make_request("b", 3));

  sender->stop_by(steady_clock::now() + milliseconds(100));
  sender.reset();

  EXPECT_EQ(drops_.get(DropCause::kOtlpStopped), 5u);
}

}  // namespace
}  // namespace gpuperf::otlp
