#include "daemon/session/session_source.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>

#include "daemon/base/proc_text.h"
#include "daemon/session/session_bytes.h"
#include "tests/unit/matchers.h"
#include "tests/unit/session/session_packets.h"

namespace gpuperf {
namespace {

using namespace session_packets;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience{10};

// This process as a peer.
class Peer {
 public:
  explicit Peer(const std::string& path) : socket_(socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
    (void)setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

  static gpuperf_hello make_own_hello() {
    timespec mono{}, real{};
    (void)clock_gettime(CLOCK_MONOTONIC, &mono);
    (void)clock_gettime(CLOCK_REALTIME, &real);
    gpuperf_hello hello = make_hello();
    hello.pid = static_cast<uint32_t>(getpid());
    hello.process_start_ticks = *read_start_ticks("/proc", hello.pid);
    hello.mono_ns = static_cast<uint64_t>(mono.tv_sec) * 1'000'000'000 + mono.tv_nsec;
    hello.unix_ns = static_cast<uint64_t>(real.tv_sec) * 1'000'000'000 + real.tv_nsec;
    return hello;
  }

  bool send(const Packet& packet, int flags = 0) {
    return ::send(socket_.get(), packet.data(), packet.size(), flags | MSG_NOSIGNAL) ==
           static_cast<ssize_t>(packet.size());
  }
  // Empty once the daemon has closed it.
  Packet receive() {
    Packet packet(65'536, '\0');
    const ssize_t count = recv(socket_.get(), packet.data(), packet.size(), 0);
    packet.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return packet;
  }
  gpuperf_control greet() {
    EXPECT_TRUE(send(make_message(GPUPERF_MESSAGE_HELLO, make_own_hello())));
    return receive_control();
  }
  gpuperf_control receive_control() {
    const Packet answer = receive();
    if (answer.size() == sizeof(gpuperf_control)) return copy_as<gpuperf_control>(as_bytes(answer));
    ADD_FAILURE() << "an answer of " << answer.size() << " bytes";
    return {};
  }
  uint32_t find_refusal(const gpuperf_hello& hello) {
    EXPECT_TRUE(send(make_message(GPUPERF_MESSAGE_HELLO, hello)));
    const Packet answer = receive();
    if (answer.size() != sizeof(gpuperf_refuse)) return 0;
    return copy_as<gpuperf_refuse>(as_bytes(answer)).reason;
  }
  void hang_up() { socket_.reset(); }

 private:
  Fd socket_;
};

class SessionSourceTest : public ::testing::Test {
 protected:
  SessionSourceTest() {
    std::filesystem::create_directories(folder_);
    setup_.socket_path = folder_ / "ingest.sock";
    setup_.limits.sessions_per_process = 100;
    setup_.find_owner = [](const ProcessKey&) { return Owner{.comm = "me"}; };
    setup_.name_pod = [](Owner&) { return true; };
    setup_.on_batch = [this] {
      const std::lock_guard lock(mutex_);
      queued_.notify_all();
    };
  }
  ~SessionSourceTest() override {
    source_.reset();
    std::filesystem::remove_all(folder_);
  }

  void start() {
    auto source = SessionSource::make(setup_, clock_, drops_);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    source_->start();
  }
  Peer connect() { return Peer(setup_.socket_path); }

  // The next event that is an Event, others passed over.
  template <class Event>
  std::optional<Event> wait_for() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      while (!events_.empty()) {
        SessionEvent event = std::move(events_.front());
        events_.pop_front();
        if (auto* found = std::get_if<Event>(&event)) return std::move(*found);
      }
      std::unique_lock lock(mutex_);
      auto batch = source_->try_pop();
      if (!batch) {
        if (queued_.wait_until(lock, deadline) == std::cv_status::timeout) return std::nullopt;
        continue;
      }
      for (SessionEvent& event : *batch) events_.push_back(std::move(event));
    }
  }
  void expect_closed(Peer& peer, const std::string& reason) {
    const auto closed = wait_for<SessionClosed>();
    ASSERT_TRUE(closed);
    EXPECT_THAT(closed->reason, HasSubstr(reason));
    EXPECT_EQ(peer.receive(), "");
  }
  uint64_t start_ns() const { return static_cast<uint64_t>(clock_.unix_ns() - 1'000'000); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("gpuperf_sessions_" + std::to_string(getpid()));
  SystemClock clock_;
  DropCounters drops_;
  SessionSource::Setup setup_;
  std::mutex mutex_;
  std::condition_variable queued_;
  std::deque<SessionEvent> events_;
  std::unique_ptr<SessionSource> source_;
};

TEST_F(SessionSourceTest, AsksForAllocationsOnlyWhereTheyAreWanted) {
  setup_.allocations = false;
  start();

  const gpuperf_control welcome = connect().greet();

  EXPECT_EQ(welcome.enabled_kinds,
            GPUPERF_SESSION_ALL_KINDS & ~GPUPERF_SESSION_BIT(GPUPERF_SESSION_MEMORY));
}

TEST_F(SessionSourceTest, WelcomesAProcessAndTellsWhatItSends) {
  setup_.order.sample_every = 3;
  start();
  Peer peer = connect();

  const gpuperf_control welcome = peer.greet();
  EXPECT_TRUE(peer.send(make_batch(make_all_records(start_ns()))));
  EXPECT_TRUE(peer.send(make_message(GPUPERF_MESSAGE_STATUS, make_status())));
  const auto opened = wait_for<SessionOpened>();
  const auto batch = wait_for<SessionBatch>();
  const auto status = wait_for<SessionStatus>();
  peer.hang_up();
  const auto closed = wait_for<SessionClosed>();

  EXPECT_EQ(welcome.header.kind, GPUPERF_MESSAGE_WELCOME);
  EXPECT_EQ(welcome.mode, GPUPERF_SESSION_RUN);
  EXPECT_EQ(welcome.sample_every, 3u);
  EXPECT_EQ(welcome.enabled_kinds, GPUPERF_SESSION_ALL_KINDS);
  ASSERT_TRUE(opened && batch && status && closed);
  EXPECT_EQ(opened->process.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(opened->owner.comm, "me");
  EXPECT_EQ(opened->uid, geteuid());
  EXPECT_EQ(opened->contract_version, GPUPERF_SESSION_VERSION);
  EXPECT_EQ(batch->session_id, welcome.session_id);
  EXPECT_EQ(batch->kernels.size(), 1u);
  EXPECT_EQ(status->received_records, 11u);
  EXPECT_EQ(closed->reason, "connection closed");
}

TEST_F(SessionSourceTest, LetsEveryUserConnect) {
  start();

  struct stat status {};
  ASSERT_EQ(stat(setup_.socket_path.c_str(), &status), 0);

  EXPECT_EQ(status.st_mode & 07777, 0666u);
}

TEST_F(SessionSourceTest, LeavesNoSocketBehind) {
  start();
  source_.reset();
  EXPECT_FALSE(std::filesystem::exists(setup_.socket_path));
}

TEST_F(SessionSourceTest, RemovesTheSocketOfAKilledDaemonButNotOfALivingOne) {
  Fd dead(socket(AF_UNIX, SOCK_SEQPACKET, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  setup_.socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  dead.reset();

  start();
  const auto second = SessionSource::make(setup_, clock_, drops_);

  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_TRUE(std::filesystem::exists(setup_.socket_path));
}

TEST_F(SessionSourceTest, RefusesWhoIsNotWhoItSays) {
  start();
  gpuperf_hello other_pid = Peer::make_own_hello();
  other_pid.pid += 1;
  gpuperf_hello other_start = Peer::make_own_hello();
  other_start.process_start_ticks += 1;

  EXPECT_EQ(connect().find_refusal(other_pid), GPUPERF_SESSION_REFUSED_IDENTITY);
  EXPECT_EQ(connect().find_refusal(other_start), GPUPERF_SESSION_REFUSED_IDENTITY);
  EXPECT_EQ(drops_.get(DropCause::kSessionRefused), 2u);
}

TEST_F(SessionSourceTest, SpeaksTheSmallerVersionOrRefuses) {
  start();
  Packet newer = make_message(GPUPERF_MESSAGE_HELLO, Peer::make_own_hello());
  newer[4] = 7;
  Packet too_new = newer;
  too_new[offsetof(gpuperf_hello, oldest_version)] = 2;
  Peer peer = connect();
  Peer refused = connect();

  EXPECT_TRUE(peer.send(newer));
  EXPECT_TRUE(refused.send(too_new));

  EXPECT_EQ(peer.receive_control().header.version, GPUPERF_SESSION_VERSION);
  const Packet answer = refused.receive();
  ASSERT_EQ(answer.size(), sizeof(gpuperf_refuse));
  EXPECT_EQ(copy_as<gpuperf_refuse>(as_bytes(answer)).reason, GPUPERF_SESSION_REFUSED_VERSION);
}

TEST_F(SessionSourceTest, TakesTwoConnectionsOfAProcessAndNoMore) {
  setup_.limits.sessions_per_process = 2;
  start();
  Peer first = connect(), second = connect();
  (void)first.greet();
  (void)second.greet();

  EXPECT_EQ(connect().find_refusal(Peer::make_own_hello()), GPUPERF_SESSION_REFUSED_FULL);
  EXPECT_EQ(drops_.get(DropCause::kSessionsFull), 1u);
  first.hang_up();
  (void)wait_for<SessionClosed>();
  EXPECT_EQ(connect().greet().header.kind, GPUPERF_MESSAGE_WELCOME);
}

TEST_F(SessionSourceTest, TakesNoMoreOfOneUserThanItsShare) {
  setup_.limits.sessions_per_user = 3;
  start();
  std::vector<Peer> peers;
  for (int i = 0; i < 3; ++i) (void)peers.emplace_back(connect()).greet();

  EXPECT_EQ(connect().find_refusal(Peer::make_own_hello()), GPUPERF_SESSION_REFUSED_FULL);
}

TEST_F(SessionSourceTest, ClosesWhoSaysNothing) {
  setup_.limits.hello_timeout = milliseconds(20);
  start();
  Peer peer = connect();

  EXPECT_EQ(peer.receive(), "");
  EXPECT_EQ(drops_.get(DropCause::kSessionSilent), 1u);
}

TEST_F(SessionSourceTest, ClosesWhoBreaksTheContract) {
  start();
  Packet half = make_message(GPUPERF_MESSAGE_HELLO, Peer::make_own_hello());
  half.resize(half.size() / 2);
  const Packet bad_greetings[] = {"garbage", half, make_batch({})};
  for (const Packet& greeting : bad_greetings) {
    Peer peer = connect();
    EXPECT_TRUE(peer.send(greeting));
    EXPECT_EQ(peer.receive(), "");
  }
  const Packet bad_messages[] = {"garbage", make_batch({make_name(2, "k")}),
                                 make_message(GPUPERF_MESSAGE_HELLO, make_hello()),
                                 make_message(GPUPERF_MESSAGE_CONTROL, gpuperf_control{}),
                                 Packet(GPUPERF_MESSAGE_BYTES_MAX + 8, 'x')};
  for (const Packet& message : bad_messages) {
    Peer peer = connect();
    (void)peer.greet();
    EXPECT_TRUE(peer.send(message));
    expect_closed(peer, "malformed: ");
  }
  EXPECT_EQ(drops_.get(DropCause::kSessionMalformed), 8u);
}

TEST_F(SessionSourceTest, PassesOverMessagesOfLaterVersions) {
  start();
  Peer peer = connect();
  (void)peer.greet();

  EXPECT_TRUE(peer.send(make_message(99, gpuperf_hello{}, "anything")));
  EXPECT_TRUE(peer.send(make_batch(make_all_records(start_ns()))));

  EXPECT_TRUE(wait_for<SessionBatch>());
  EXPECT_EQ(drops_.get(DropCause::kSessionUnknownKind), 1u);
}

TEST_F(SessionSourceTest, CountsRecordsWithoutSenseAndGoesOn) {
  start();
  Peer peer = connect();
  (void)peer.greet();
  auto kernel = make_kernel(0);
  kernel.name_id = 2;

  EXPECT_TRUE(peer.send(make_batch({make_name(1, "k"), make_shape(1), make_place(1),
                                    make_record(GPUPERF_SESSION_KERNEL, 1, make_kernel(0)),
                                    make_record(GPUPERF_SESSION_KERNEL, 1, kernel)})));
  EXPECT_TRUE(peer.send(make_message(GPUPERF_MESSAGE_STATUS, make_status())));
  const auto status = wait_for<SessionStatus>();

  ASSERT_TRUE(status);
  EXPECT_EQ(status->received_records, 2u);
  EXPECT_EQ(status->rejected_records, 2u);
  EXPECT_EQ(drops_.get(DropCause::kSessionBadTime), 1u);
  EXPECT_EQ(drops_.get(DropCause::kSessionUnknownId), 1u);
}

TEST_F(SessionSourceTest, DropsWhatAChildSendsThroughTheConnection) {
  start();
  Peer peer = connect();
  (void)peer.greet();

  const pid_t child = fork();
  if (child == 0) _exit(peer.send(make_batch(make_all_records(1))) ? 0 : 1);
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_TRUE(peer.send(make_message(GPUPERF_MESSAGE_STATUS, make_status())));
  const auto status = wait_for<SessionStatus>();

  ASSERT_TRUE(status);
  EXPECT_EQ(status->received_records, 0u);
  EXPECT_EQ(drops_.get(DropCause::kSessionForeign), 1u);
}

TEST_F(SessionSourceTest, EndsASessionWithItsProcessThoughAChildKeepsTheConnection) {
  start();
  int until_done[2];
  ASSERT_EQ(pipe(until_done), 0);
  const pid_t child = fork();
  if (child == 0) {
    Peer peer = connect();
    (void)peer.greet();
    if (fork() == 0) {  // holds the connection until the test is over
      (void)::close(until_done[1]);
      char byte = 0;
      (void)!read(until_done[0], &byte, 1);
    }
    _exit(0);
  }
  (void)::close(until_done[0]);

  const auto closed = wait_for<SessionClosed>();
  (void)::close(until_done[1]);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);

  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->reason, "process ended");
}

TEST_F(SessionSourceTest, GivesOrdersToSessionsByIdAndPidAndToThoseToCome) {
  start();
  Peer peer = connect();
  const uint64_t id = peer.greet().session_id;
  std::mutex mutex;
  std::vector<std::string> answers;
  const auto note = [&](const Result<size_t>& told) {
    const std::lock_guard lock(mutex);
    answers.push_back(told.ok() ? std::to_string(*told) : std::string(told.status().message()));
  };

  source_->post_order({.session_id = id}, {.mode = SessionOrder::Mode::kPause}, note);
  EXPECT_EQ(peer.receive_control().mode, GPUPERF_SESSION_PAUSE);
  source_->post_order({.pid = static_cast<uint32_t>(getpid())},
                      {.burst_flags = GPUPERF_SESSION_BURST_NODES, .burst_ms = 500}, note);
  EXPECT_EQ(peer.receive_control().burst_ms, 500u);
  source_->post_order({.session_id = 999}, {}, note);
  source_->post_order({}, {.mode = SessionOrder::Mode::kOff}, note);
  EXPECT_EQ(peer.receive_control().mode, GPUPERF_SESSION_OFF);
  EXPECT_EQ(connect().greet().mode, GPUPERF_SESSION_OFF);
  source_->post_order({}, {.sample_every = 0}, note);
  source_->stop();
  source_->post_order({}, {}, note);

  EXPECT_THAT(answers,
              ::testing::ElementsAre(
                  "1", "1", "session 999 is not open; those there are: gpuperfctl sessions", "1",
                  HasSubstr("sample_every"), HasSubstr("stopping")));
}

TEST_F(SessionSourceTest, AsksForProgressByWhatWasOrderedLast) {
  start();
  Peer peer = connect();
  const uint64_t id = peer.greet().session_id;
  const auto wants_progress = [](const gpuperf_control& control) {
    return (control.enabled_kinds & GPUPERF_SESSION_PROGRESS) != 0;
  };
  source_->post_order({.session_id = id}, {.mode = SessionOrder::Mode::kPause, .sample_every = 3},
                      [](const auto&) {});
  EXPECT_FALSE(wants_progress(peer.receive_control()));

  source_->post_progress(true);
  const gpuperf_control asked = peer.receive_control();
  EXPECT_TRUE(wants_progress(asked));
  EXPECT_EQ(asked.mode, GPUPERF_SESSION_PAUSE);
  EXPECT_EQ(asked.sample_every, 3u);
  source_->post_order({.session_id = id}, {}, [](const auto&) {});
  EXPECT_TRUE(wants_progress(peer.receive_control())) << "until it is no longer wanted";
  source_->post_progress(false);
  EXPECT_FALSE(wants_progress(peer.receive_control()));

  source_->post_order({.session_id = id},
                      {.burst_flags = GPUPERF_SESSION_BURST_NODES, .burst_ms = 500},
                      [](const auto&) {});
  EXPECT_EQ(peer.receive_control().burst_ms, 500u);
  source_->post_progress(true);  // nothing to this one: its burst would begin anew
  source_->post_order({.session_id = id}, {.sample_every = 9}, [](const auto&) {});
  EXPECT_EQ(peer.receive_control().sample_every, 9u);
}

TEST_F(SessionSourceTest, SendsTheLatestOrderToOneThatReadsLate) {
  start();
  Peer peer = connect();
  (void)peer.greet();
  constexpr uint32_t kOrders = 5'000;
  std::atomic<uint32_t> done = 0;
  for (uint32_t i = 1; i <= kOrders; ++i) {
    source_->post_order({}, {.sample_every = i}, [&](const auto&) { ++done; });
    while (done < i) std::this_thread::yield();
  }

  uint32_t received = 0;
  uint32_t last = 0;
  for (; last != kOrders; ++received) last = peer.receive_control().sample_every;

  EXPECT_LT(received, kOrders);  // the socket's buffer, and the latest
}

TEST_F(SessionSourceTest, LeavesTheRestInTheSocketWhileTheLoopIsBehind) {
  start();
  Peer peer = connect();
  (void)peer.greet();
  const Packet status = make_message(GPUPERF_MESSAGE_STATUS, make_status());

  uint64_t sent = 0;  // until neither the queue nor the socket takes any more
  for (int refused = 0; refused < 20;) {
    if (peer.send(status, MSG_DONTWAIT)) {
      ++sent;
      refused = 0;
    } else {
      ++refused;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  EXPECT_TRUE(peer.send(status, MSG_DONTWAIT) || errno == EAGAIN);

  EXPECT_LT(sent, 64 * SessionSource::kQueueBatches + 2'000);
  for (uint64_t i = 0; i < sent; ++i) ASSERT_TRUE(wait_for<SessionStatus>()) << i << " of " << sent;
}

TEST_F(SessionSourceTest, ReadsAFloodingSessionLaterAndTheOthersAtOnce) {
  setup_.limits.records_per_second = 1'000;
  start();
  Peer flood = connect();
  Peer other = connect();
  (void)flood.greet();
  (void)other.greet();
  const Packet status = make_message(GPUPERF_MESSAGE_STATUS, make_status());

  for (int i = 0; i < 100; ++i) (void)flood.send(status, MSG_DONTWAIT);  // 64 records' worth each
  EXPECT_TRUE(other.send(make_batch(make_all_records(start_ns()))));

  EXPECT_TRUE(wait_for<SessionBatch>());
  // A second's worth is 15 messages; what was sent after that waits, whatever is sent beside.
  for (int i = 0; i < 10; ++i) {
    (void)flood.send(status, MSG_DONTWAIT);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GT(drops_.get(DropCause::kSessionThrottled), 0u);
  EXPECT_LT(drops_.get(DropCause::kSessionThrottled), 20u);
}

TEST_F(SessionSourceTest, WaitsForThePodsNameAndLosesNothing) {
  std::atomic<int> asked = 0;
  setup_.name_pod = [&](Owner& owner) {
    owner.pod = "trainer-0";
    return ++asked > 3;
  };
  start();
  Peer peer = connect();
  (void)peer.greet();

  EXPECT_TRUE(peer.send(make_batch(make_all_records(start_ns()))));
  const auto opened = wait_for<SessionOpened>();

  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->owner.pod, "trainer-0");
  EXPECT_TRUE(wait_for<SessionBatch>());
}

TEST_F(SessionSourceTest, TellsTheEndOfAllWhenItStops) {
  start();
  Peer peer = connect();
  (void)peer.greet();
  EXPECT_TRUE(peer.send(make_batch(make_all_records(start_ns()))));

  source_->stop();

  EXPECT_TRUE(wait_for<SessionBatch>());
  expect_closed(peer, "gpuperfd stopping");
}

}  // namespace
}  // namespace gpuperf
