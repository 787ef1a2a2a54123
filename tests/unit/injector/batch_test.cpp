#include "injector/batch.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/injector/daemon_end.h"

namespace gpuperf::injector {
namespace {

class BatchTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(daemon_.come_together(*link_, kNowMs)); }
  void add(uint32_t id) {
    gpuperf_session_gap gap = {};
    gap.record = {GPUPERF_SESSION_GAP, sizeof(gap), id};
    batch_->make_room(sizeof(gap), kNowMs);
    batch_->add_record(&gap, sizeof(gap));
  }

  DaemonEnd daemon_;
  std::unique_ptr<DaemonLink> link_ = std::make_unique<DaemonLink>();
  std::unique_ptr<Batch> batch_ = std::make_unique<Batch>(*link_);
};

TEST_F(BatchTest, SendsRecordsBackToBackWithTheirCount) {
  for (const uint32_t id : {4u, 5u, 6u}) add(id);
  batch_->send(kNowMs);

  const std::vector<uint8_t> message = daemon_.take();
  const auto batch = read_as<gpuperf_batch>(message);
  EXPECT_EQ(batch.header.kind, GPUPERF_MESSAGE_BATCH);
  EXPECT_EQ(batch.header.length_bytes, message.size());
  EXPECT_EQ(batch.record_count, 3u);
  EXPECT_EQ(batch.records_bytes, 3 * sizeof(gpuperf_session_gap));
  for (uint32_t i = 0; i < 3; ++i) {
    const auto gap =
        read_as<gpuperf_session_gap>(message, sizeof(batch) + i * sizeof(gpuperf_session_gap));
    EXPECT_EQ(gap.record.id, 4 + i);
  }
  EXPECT_EQ(batch_->sent_records(), 3u);
}

TEST_F(BatchTest, SendsNoEmptyMessage) {
  batch_->send(kNowMs);

  EXPECT_TRUE(daemon_.take().empty());
}

TEST_F(BatchTest, NoMessageIsLongerThanTheLimitInForce) {
  for (const uint32_t limit : {0u, 5'000u, GPUPERF_MESSAGE_BYTES_MAX, UINT32_MAX}) {
    SCOPED_TRACE(limit);
    batch_->set_limit(limit);
    // Never so short that the longest name and a record do not fit, never longer than a message.
    const size_t in_force = limit < 4'096                       ? 4'096
                            : limit < GPUPERF_MESSAGE_BYTES_MAX ? limit
                                                                : GPUPERF_MESSAGE_BYTES_MAX;
    for (uint32_t i = 0; i < 6'000; ++i) add(i);
    batch_->send(kNowMs);

    uint32_t next = 0;
    for (auto message = daemon_.take(); !message.empty(); message = daemon_.take()) {
      EXPECT_LE(message.size(), in_force);
      const auto batch = read_as<gpuperf_batch>(message);
      EXPECT_EQ(read_as<gpuperf_session_gap>(message, sizeof(batch)).record.id, next);
      next += batch.record_count;
    }
    EXPECT_EQ(next, 6'000u);
  }
}

TEST_F(BatchTest, CountsWhatTheDaemonDoesNotTake) {
  link_->disconnect(kNowMs);
  for (uint32_t i = 0; i < 10; ++i) add(i);
  batch_->send(kNowMs);

  EXPECT_EQ(batch_->sent_records(), 0u);
  EXPECT_EQ(batch_->refused_records(), 10u);
  EXPECT_FALSE(batch_->has_lost_entries());
}

TEST_F(BatchTest, KnowsWhenANameWasLostWithAMessage) {
  link_->disconnect(kNowMs);
  const gpuperf_session_name name = {{GPUPERF_SESSION_NAME, sizeof(name), 1}, 0, 0, 0};
  batch_->add_entry(&name, sizeof(name));
  batch_->send(kNowMs);

  EXPECT_TRUE(batch_->has_lost_entries());
  EXPECT_EQ(batch_->refused_records(), 0u);
  batch_->clear();
  EXPECT_FALSE(batch_->has_lost_entries());
}

TEST_F(BatchTest, WhatIsClearedIsCountedAndNotSent) {
  for (uint32_t i = 0; i < 4; ++i) add(i);
  batch_->clear();
  batch_->send(kNowMs);

  EXPECT_EQ(batch_->refused_records(), 4u);
  EXPECT_TRUE(daemon_.take().empty());
}

}  // namespace
}  // namespace gpuperf::injector
