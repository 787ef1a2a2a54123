#include "injector/buffers.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace gpuperf::injector {
namespace {

TEST(BuffersTest, HandsOutSoManyAndNoMore) {
  Buffers buffers;
  std::set<uint8_t*> out;
  for (size_t i = 0; i < Buffers::kBuffersMax; ++i) out.insert(buffers.acquire());

  EXPECT_EQ(out.size(), Buffers::kBuffersMax);
  EXPECT_EQ(out.count(nullptr), 0u);
  EXPECT_EQ(buffers.acquire(), nullptr);
  EXPECT_EQ(buffers.out_count(), Buffers::kBuffersMax);

  buffers.release(*out.begin());
  EXPECT_EQ(buffers.acquire(), *out.begin());
  for (uint8_t* bytes : out) buffers.release(bytes);
  buffers.shrink();
  EXPECT_EQ(buffers.made_count(), 0u);
}

TEST(BuffersTest, GivesBackInTheOrderOfCompletion) {
  Buffers buffers;
  std::vector<uint8_t*> bytes;
  for (int i = 0; i < 5; ++i) bytes.push_back(buffers.acquire());

  for (size_t i = 0; i < 3; ++i) buffers.complete(bytes[i], 100 + i);
  EXPECT_EQ(buffers.take().bytes, bytes[0]);
  for (size_t i = 3; i < 5; ++i) buffers.complete(bytes[i], 100 + i);

  for (size_t i = 1; i < 5; ++i) {
    const Buffers::Completed done = buffers.take();
    EXPECT_EQ(done.bytes, bytes[i]);
    EXPECT_EQ(done.valid_bytes, 100 + i);
  }
  EXPECT_EQ(buffers.take().bytes, nullptr);
  for (uint8_t* each : bytes) buffers.release(each);
  buffers.shrink();
}

TEST(BuffersTest, LeavesABufferOfAnotherClientAlone) {
  Buffers buffers;
  uint8_t* ours = buffers.acquire();
  std::vector<uint8_t> theirs(64, 0xab);

  EXPECT_FALSE(buffers.complete(theirs.data(), theirs.size()));
  EXPECT_TRUE(buffers.complete(ours, 0));

  EXPECT_EQ(buffers.take().bytes, ours);
  EXPECT_EQ(buffers.take().bytes, nullptr);
  buffers.release(ours);
  buffers.shrink();
  EXPECT_FALSE(buffers.complete(ours, 0)) << "it was given back to the system";
}

TEST(BuffersTest, EveryByteOfABufferIsTheClients) {
  Buffers buffers;
  uint8_t* bytes = buffers.acquire();
  std::memset(bytes, 0xff, Buffers::kBufferBytes);

  buffers.complete(bytes, Buffers::kBufferBytes);

  const Buffers::Completed done = buffers.take();
  EXPECT_EQ(done.bytes[0], 0xff);
  EXPECT_EQ(done.bytes[Buffers::kBufferBytes - 1], 0xff);
  buffers.release(bytes);
  buffers.shrink();
}

TEST(BuffersTest, KeepsAFewReadyAndGivesTheRestBackToTheSystem) {
  Buffers buffers;
  std::vector<uint8_t*> out;
  for (size_t i = 0; i < 3 * Buffers::kReady; ++i) out.push_back(buffers.acquire());

  for (uint8_t* bytes : out) buffers.release(bytes);

  EXPECT_EQ(buffers.made_count(), Buffers::kReady);
  EXPECT_EQ(buffers.out_count(), 0u);
  buffers.shrink();
  EXPECT_EQ(buffers.made_count(), 0u);
  buffers.stock_up();
  EXPECT_EQ(buffers.made_count(), Buffers::kReady);
  buffers.shrink();
}

TEST(BuffersTest, WakesItsReaderOnceManyWait) {
  Buffers buffers;
  const int wake_fd = eventfd(0, EFD_NONBLOCK);
  buffers.set_wake_fd(wake_fd);
  std::vector<uint8_t*> out;
  for (size_t i = 0; i < Buffers::kManyComplete; ++i) out.push_back(buffers.acquire());
  uint64_t count = 0;

  for (size_t i = 0; i + 1 < out.size(); ++i) buffers.complete(out[i], 1);
  EXPECT_LT(read(wake_fd, &count, sizeof(count)), 0);
  buffers.complete(out.back(), 1);
  EXPECT_EQ(read(wake_fd, &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));

  while (buffers.take().bytes != nullptr) {
  }
  for (uint8_t* bytes : out) buffers.release(bytes);
  buffers.shrink();
  close(wake_fd);
}

TEST(BuffersTest, ManyThreadsLoseNothingAndShareNothing) {
  constexpr uint32_t kThreads = 8, kRounds = 2'000;
  Buffers buffers;
  std::atomic<uint32_t> working = kThreads;
  std::atomic<uint64_t> completed = 0;
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint32_t round = 0; round < kRounds; ++round) {
        uint8_t* bytes = buffers.acquire();
        if (bytes == nullptr) {
          std::this_thread::yield();
          continue;
        }
        const uint64_t stamp = uint64_t{thread} << 32 | round;
        std::memcpy(bytes, &stamp, sizeof(stamp));
        std::this_thread::yield();
        uint64_t still = 0;
        std::memcpy(&still, bytes, sizeof(still));
        EXPECT_EQ(still, stamp);  // nobody else had it meanwhile
        buffers.complete(bytes, sizeof(stamp));
        ++completed;
      }
      --working;
    });
  }

  uint64_t taken = 0;
  std::vector<int64_t> last(kThreads, -1);
  for (bool is_over = false; !is_over;) {
    is_over = working == 0;
    for (auto done = buffers.take(); done.bytes != nullptr; done = buffers.take()) {
      uint64_t stamp = 0;
      std::memcpy(&stamp, done.bytes, sizeof(stamp));
      EXPECT_GT(static_cast<int64_t>(stamp & UINT32_MAX), last[stamp >> 32]);  // each one's order
      last[stamp >> 32] = static_cast<int64_t>(stamp & UINT32_MAX);
      ++taken;
      buffers.release(done.bytes);
    }
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(taken, completed.load());
  EXPECT_EQ(buffers.out_count(), 0u);
  EXPECT_LE(buffers.made_count(), Buffers::kReady);
  buffers.shrink();
}

}  // namespace
}  // namespace gpuperf::injector
