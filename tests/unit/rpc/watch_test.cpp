#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "daemon/rpc/watch_stream.h"
#include "tests/unit/model/make_stack.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

using testing::RpcFixture;

std::shared_ptr<const SlowCall> make_named_call(uint64_t id, uint32_t pid = 1,
                                                size_t name_bytes = 10) {
  SlowCall call{.id = id, .category = "cuda", .function = "f"};
  call.event.process.pid = pid;
  call.user_stack = testing::make_stack({{.symbol = std::string(name_bytes, 's')}});
  return std::make_shared<const SlowCall>(std::move(call));
}

// One watching client.
class Watch {
 public:
  Watch(v1::Observe::Stub& stub, const std::string& request) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    reader_ = stub.WatchSlowCalls(&context_, parse_text<v1::WatchSlowCallsRequest>(request));
    reader_->WaitForInitialMetadata();  // from here on it misses nothing
  }
  std::optional<v1::WatchSlowCallsResponse> read() {
    v1::WatchSlowCallsResponse response;
    if (!reader_->Read(&response)) return std::nullopt;
    return response;
  }
  void cancel() { context_.TryCancel(); }
  grpc::Status finish() {
    while (read().has_value()) {
    }
    return reader_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchSlowCallsResponse>> reader_;
};

class WatchTest : public RpcFixture {
 protected:
  void SetUp() override { start(); }
};

TEST_F(WatchTest, SendsSlowCallsAsTheyHappen) {
  Watch watch(*stub_, "");

  for (uint64_t id = 1; id <= 3; ++id) {
    hub_.on_slow_call(make_named_call(id));
    const auto response = watch.read();
    ASSERT_TRUE(response.has_value());
    EXPECT_EQ(response->slow_call().id(), id);
    EXPECT_EQ(response->slow_call().function(), "f");
    EXPECT_EQ(response->missed_count(), 0u);
  }
  watch.cancel();
  EXPECT_EQ(watch.finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(WatchTest, SendsOnlyWhatTheFilterLetsThrough) {
  Watch watch(*stub_, "filter { pid: 2 }");

  hub_.on_slow_call(make_named_call(1, 1));
  hub_.on_slow_call(make_named_call(2, 2));

  EXPECT_EQ(watch.read()->slow_call().id(), 2u);
  watch.cancel();
}

TEST_F(WatchTest, TellsASlowReaderExactlyWhatItMissed) {
  constexpr uint64_t kCalls = 6'000;
  constexpr size_t kNameBytes = 8'000;  // 1024 of them are more than the buffers on the way hold
  Watch slow(*stub_, "");
  for (uint64_t id = 1; id <= kCalls; ++id) hub_.on_slow_call(make_named_call(id, 1, kNameBytes));
  const uint64_t dropped = drops_.get(DropCause::kWatchReaderSlow);

  uint64_t accounted = 0;
  uint64_t missed = 0;
  while (accounted < kCalls) {
    const auto response = slow.read();
    ASSERT_TRUE(response.has_value());
    missed += response->missed_count();
    accounted += 1 + response->missed_count();
    ASSERT_EQ(response->slow_call().id(), accounted);
  }

  EXPECT_GT(missed, 0u);
  EXPECT_EQ(missed, dropped);
  slow.cancel();
}

TEST_F(WatchTest, ServesManyReadersAtOnce) {
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < 20; ++i) watches.push_back(std::make_unique<Watch>(*stub_, ""));

  for (uint64_t id = 1; id <= 50; ++id) hub_.on_slow_call(make_named_call(id));

  for (const auto& watch : watches) {
    for (uint64_t id = 1; id <= 50; ++id) ASSERT_EQ(watch->read()->slow_call().id(), id);
    watch->cancel();
  }
}

TEST_F(WatchTest, ForgetsReadersThatHaveGone) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  // More than there may be at once: none of them may stay.
  for (size_t accepted = 0; accepted < 3 * WatchHub::kMaxReaders;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    Watch watch(*stub_, "");
    watch.cancel();
    if (watch.finish().error_code() == grpc::StatusCode::CANCELLED) ++accepted;
  }
}

TEST_F(WatchTest, EndsWithUnavailableWhenTheDaemonStops) {
  Watch watch(*stub_, "");
  hub_.on_slow_call(make_named_call(1));
  ASSERT_EQ(watch.read()->slow_call().id(), 1u);
  std::thread stopping([this] { server_->stop(); });

  const grpc::Status status = watch.finish();

  stopping.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the daemon is stopping");
}

TEST_F(WatchTest, AReaderThatReadsNothingDoesNotHoldUpTheStop) {
  Watch stuck(*stub_, "");
  for (uint64_t id = 1; id <= 2'000; ++id) hub_.on_slow_call(make_named_call(id, 1, 8'000));
  const auto begin = std::chrono::steady_clock::now();

  server_->stop();

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_FALSE(stuck.finish().ok());
}

TEST_F(WatchTest, RefusesReadersOnceTheHubIsClosed) {
  hub_.close();

  Watch late(*stub_, "");

  EXPECT_EQ(late.finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(WatchTest, StopsWhileCallsArriveAndReadersComeAndGo) {
  std::atomic<bool> stop = false;
  std::thread loop([&] {
    for (uint64_t id = 1; !stop; ++id) hub_.on_slow_call(make_named_call(id));
  });
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        Watch watch(*stub_, "");
        for (int n = 0; n < 20 && watch.read().has_value(); ++n) {
        }
        watch.cancel();
        (void)watch.finish();
      }
    });
  }
  Watch last(*stub_, "");
  ASSERT_TRUE(last.read().has_value());

  server_->stop();

  for (std::thread& reader : readers) reader.join();
  stop = true;
  loop.join();
  EXPECT_FALSE(last.finish().ok());
}

}  // namespace
}  // namespace gpuperf
