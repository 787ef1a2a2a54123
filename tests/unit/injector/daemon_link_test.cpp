#include "injector/daemon_link.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/injector/daemon_end.h"

namespace gpuperf::injector {
namespace {

constexpr uint64_t kStartMs = 1'000'000;

// A status whose detail tells it from others.
gpuperf_status make_status(uint32_t number) {
  gpuperf_status status = {};
  status.header.kind = GPUPERF_MESSAGE_STATUS;
  status.header.length_bytes = sizeof(status);
  status.records_sent = number;
  return status;
}

class DaemonLinkTest : public testing::Test {
 protected:
  void connect(uint64_t now_ms = kStartMs) {
    link_->set_up(daemon_.path());
    ASSERT_TRUE(link_->try_connect(now_ms));
    daemon_.accept();
    hello_ = read_as<gpuperf_hello>(daemon_.take());
  }
  void come_together() {
    connect();
    daemon_.welcome();
    ASSERT_TRUE(link_->receive(kStartMs));
    ASSERT_EQ(link_->state(), DaemonLink::State::kTogether);
  }
  bool send(uint32_t number) {
    gpuperf_status status = make_status(number);
    return link_->send(&status.header, kStartMs);
  }

  DaemonEnd daemon_;
  std::unique_ptr<DaemonLink> link_ = std::make_unique<DaemonLink>();
  gpuperf_hello hello_ = {};
};

TEST_F(DaemonLinkTest, TriesEverMoreRarelyWhereNobodyListens) {
  link_->set_up("/nonexistent/socket");
  uint64_t now_ms = kStartMs;
  std::vector<uint64_t> waits_ms;

  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(link_->try_connect(now_ms));
    EXPECT_EQ(link_->fd(), -1);
    waits_ms.push_back(link_->next_try_ms() - now_ms);
    now_ms = link_->next_try_ms();
  }

  EXPECT_EQ(waits_ms,
            (std::vector<uint64_t>{500, 1'000, 2'000, 4'000, 8'000, 15'000, 15'000, 15'000}));
}

TEST_F(DaemonLinkTest, SaysWhoItIs) {
  connect();

  EXPECT_EQ(hello_.header.magic, GPUPERF_SESSION_MAGIC);
  EXPECT_EQ(hello_.header.kind, GPUPERF_MESSAGE_HELLO);
  EXPECT_EQ(hello_.header.length_bytes, sizeof(hello_));
  EXPECT_EQ(hello_.header.sequence, 0u);
  EXPECT_EQ(hello_.capabilities, GPUPERF_SESSION_ALL_KINDS);
  EXPECT_GT(hello_.process_start_ticks, 0u);
  EXPECT_STREQ(hello_.comm, "injector_test");
  EXPECT_STREQ(hello_.injector_version, GPUPERF_VERSION);
}

TEST_F(DaemonLinkTest, SendsNothingBeforeItIsWelcome) {
  connect();

  EXPECT_FALSE(send(1));
  EXPECT_TRUE(daemon_.take().empty());
}

TEST_F(DaemonLinkTest, TakesTheDaemonsRuling) {
  come_together();

  EXPECT_EQ(link_->control().enabled_kinds, GPUPERF_SESSION_ALL_KINDS);
  EXPECT_TRUE(send(7));
  EXPECT_EQ(read_as<gpuperf_status>(daemon_.take()).records_sent, 7u);
}

TEST_F(DaemonLinkTest, KeepsAwayForAsLongAsARefusalSays) {
  connect();
  gpuperf_refuse refuse = {{GPUPERF_SESSION_MAGIC, 1, GPUPERF_MESSAGE_REFUSE, sizeof(refuse), 0},
                           GPUPERF_SESSION_REFUSED_FULL,
                           70'000};
  daemon_.send(&refuse, sizeof(refuse));

  EXPECT_FALSE(link_->receive(kStartMs));

  EXPECT_EQ(link_->state(), DaemonLink::State::kApart);
  EXPECT_EQ(link_->next_try_ms(), kStartMs + 70'000);
  EXPECT_FALSE(link_->try_connect(kStartMs + 69'999));
  EXPECT_TRUE(link_->try_connect(kStartMs + 70'000));
}

TEST_F(DaemonLinkTest, NeverComesBackWhenToldNeverTo) {
  connect();
  gpuperf_refuse refuse = {{GPUPERF_SESSION_MAGIC, 1, GPUPERF_MESSAGE_REFUSE, sizeof(refuse), 0},
                           GPUPERF_SESSION_REFUSED_VERSION,
                           0};
  daemon_.send(&refuse, sizeof(refuse));
  (void)link_->receive(kStartMs);

  EXPECT_FALSE(link_->try_connect(kStartMs + 1'000'000'000));
}

TEST_F(DaemonLinkTest, LeavesWhoDoesNotAnswer) {
  connect();

  (void)link_->receive(kStartMs + DaemonLink::kAnswerMs);
  EXPECT_EQ(link_->state(), DaemonLink::State::kWaiting);
  (void)link_->receive(kStartMs + DaemonLink::kAnswerMs + 1);
  EXPECT_EQ(link_->state(), DaemonLink::State::kApart);
}

TEST_F(DaemonLinkTest, LeavesWhoIsNoDaemonOfOurs) {
  for (const size_t length_bytes : {sizeof(gpuperf_message), sizeof(gpuperf_control)}) {
    SCOPED_TRACE(length_bytes);
    link_ = std::make_unique<DaemonLink>();
    connect();
    const std::vector<uint8_t> nonsense(length_bytes, 'x');
    daemon_.send(nonsense.data(), nonsense.size());

    EXPECT_FALSE(link_->receive(kStartMs));
    EXPECT_EQ(link_->state(), DaemonLink::State::kApart);
  }
}

TEST_F(DaemonLinkTest, PassesOverMessagesItDoesNotKnow) {
  connect();
  const gpuperf_message unknown = {GPUPERF_SESSION_MAGIC, 9, 99, sizeof(unknown), 0};
  daemon_.send(&unknown, sizeof(unknown));
  daemon_.send("short", 5);
  daemon_.welcome();

  EXPECT_TRUE(link_->receive(kStartMs));
  EXPECT_EQ(link_->state(), DaemonLink::State::kTogether);
}

TEST_F(DaemonLinkTest, QueuesWhatTheDaemonDoesNotTakeAndRefusesMore) {
  come_together();
  uint32_t sent = 0;

  while (send(sent)) ++sent;

  EXPECT_TRUE(link_->has_queued());
  EXPECT_FALSE(link_->has_room(sizeof(gpuperf_status) + 4));
  EXPECT_GE(sent, DaemonLink::kQueueBytes / (sizeof(gpuperf_status) + 4));
  // All that was accepted arrives, in order, whole, numbered without a gap.
  uint32_t seen = 0;
  while (seen < sent) {
    const std::vector<uint8_t> message = daemon_.take();
    if (message.empty()) {
      link_->send_queued(kStartMs);
      continue;
    }
    const auto status = read_as<gpuperf_status>(message);
    ASSERT_EQ(message.size(), sizeof(status));
    ASSERT_EQ(status.records_sent, seen);
    ASSERT_EQ(status.header.sequence, seen + 1);  // after the hello
    ++seen;
  }
  EXPECT_FALSE(link_->has_queued());
  EXPECT_TRUE(send(sent));
}

TEST_F(DaemonLinkTest, KeepsTheOrderWhileTheQueueGoesRound) {
  come_together();
  uint32_t sent = 0, seen = 0;
  while (send(sent)) ++sent;

  // Three rounds of the ring, in steps that do not divide it.
  for (int round = 0; seen < 120'000; ++round) {
    for (int i = 0; i < 37 + round % 11; ++i) {
      const std::vector<uint8_t> message = daemon_.take();
      if (message.empty()) break;
      ASSERT_EQ(read_as<gpuperf_status>(message).records_sent, seen++);
    }
    while (send(sent)) ++sent;
  }
}

TEST_F(DaemonLinkTest, SaysWhenTheDaemonLastTookSomething) {
  come_together();
  while (send(0)) {
  }

  link_->send_queued(kStartMs + 9'000);
  EXPECT_EQ(link_->last_taken_ms(), kStartMs);
  for (int i = 0; i < 20; ++i) (void)daemon_.take();
  link_->send_queued(kStartMs + 9'000);
  EXPECT_EQ(link_->last_taken_ms(), kStartMs + 9'000);
}

TEST_F(DaemonLinkTest, ForgetsItsQueueWithTheConnectionAndStartsAnew) {
  come_together();
  while (send(0)) {
  }
  daemon_.close();

  (void)link_->receive(kStartMs + 10'000);
  EXPECT_EQ(link_->state(), DaemonLink::State::kApart);
  EXPECT_FALSE(link_->has_queued());
  connect(link_->next_try_ms());
  EXPECT_EQ(hello_.connection, 1u);
  daemon_.welcome();
  EXPECT_TRUE(link_->receive(kStartMs + 20'000));
  EXPECT_TRUE(send(5));
  EXPECT_EQ(read_as<gpuperf_status>(daemon_.take()).header.sequence, 1u);
}

TEST_F(DaemonLinkTest, InAForkedChildOnlyTheDescriptorGoes) {
  come_together();

  link_->abandon_after_fork();

  EXPECT_EQ(link_->fd(), -1);
  EXPECT_FALSE(send(1));
}

}  // namespace
}  // namespace gpuperf::injector
