#include "daemon/rpc/peer_relay.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

constexpr int64_t kMs = 1'000'000;
// A piece; the most that waits in one direction of a connection.
constexpr size_t kRoomBytes = size_t{64} << 10;
// What gRPC said last waits so long for a client to take it, and at the daemon's stop.
constexpr int64_t kLastWordsNs = 5'000 * kMs;
constexpr int64_t kStopNs = 200 * kMs;
// Who asked for too much is looked at so often: its work comes in pieces that are worth a turn.
constexpr int64_t kThrottledNs = 10 * kMs;
constexpr int kEventsPerWait = 64;

int64_t read_now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// One end of a connection, and what epoll last said of it: edge-triggered, so that it stays true
// until a call says otherwise.
struct PeerRelay::Side {
  // How many bytes came. 0 = none now, or `ended`.
  size_t receive(std::span<char> room) {
    ssize_t count = 0;
    do {
      count = recv(fd.get(), room.data(), room.size(), MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count > 0) return static_cast<size_t>(count);
    is_readable = false;
    ended = count == 0 || errno != EAGAIN;
    return 0;
  }

  // How many bytes it took. 0 = none now, or `is_deaf`.
  size_t send(std::span<const char> bytes) {
    ssize_t count = 0;
    do {
      count = ::send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count >= 0) return static_cast<size_t>(count);
    is_writable = false;
    is_deaf = errno != EAGAIN;
    return 0;
  }

  Fd fd;
  bool is_readable = true;
  bool is_writable = true;
  bool ended = false;    // says nothing more
  bool is_deaf = false;  // takes nothing more
};

// What came from one side and waits for the other to take it. Idle connections hold no memory.
class PeerRelay::Waiting {
 public:
  bool empty() const { return sent_ == bytes_.size(); }
  std::span<const char> get() const { return std::span(bytes_).subspan(sent_); }
  // Nothing may be waiting.
  void keep(std::span<const char> bytes) {
    bytes_.assign(bytes.begin(), bytes.end());
    sent_ = 0;
  }
  void drop_front(size_t count) {
    sent_ += count;
    if (empty()) *this = {};
  }

 private:
  std::vector<char> bytes_;
  size_t sent_ = 0;
};

struct PeerRelay::Connection {
  Side client;
  Side server;  // gRPC
  const uid_t uid;
  std::unique_ptr<FrameGuard> guard;  // once the relay's thread has it
  Waiting up;                         // from the client
  size_t admitted_bytes = 0;          // of `up`
  Waiting down;                       // from gRPC
  bool is_throttled = false;
  bool told_end = false;  // gRPC knows that the client says nothing more
  bool is_over = false;
  int64_t ends_mono_ns = INT64_MAX;  // whatever waits by then
};

Result<std::unique_ptr<PeerRelay>> PeerRelay::start(DropCounters& drops) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!epoll.valid() || !wake.valid() ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return errno_status(errno, "make an epoll for the API's connections");
  }
  return std::unique_ptr<PeerRelay>(new PeerRelay(std::move(epoll), std::move(wake), drops));
}

PeerRelay::PeerRelay(Fd epoll, Fd wake, DropCounters& drops)
    : epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      drops_(drops),
      room_(kRoomBytes),
      thread_([this] { run(); }) {}

PeerRelay::~PeerRelay() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  (void)eventfd_write(wake_.get(), 1);  // full only when a wake-up already waits
  thread_.join();
}

Result<Fd> PeerRelay::post_connection(Fd client, uid_t uid) {
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    const int error_number = errno;
    (void)shutdown(client.get(), SHUT_RDWR);  // others may hold a descriptor of it
    return errno_status(error_number, "make a pair of sockets for a connection to the API");
  }
  Fd ours(pair[0]);
  Fd theirs(pair[1]);
  {
    const MutexLock lock(mutex_);
    posted_.push_back(std::unique_ptr<Connection>(new Connection{
        .client = {.fd = std::move(client)}, .server = {.fd = std::move(ours)}, .uid = uid}));
  }
  (void)eventfd_write(wake_.get(), 1);
  return theirs;
}

void PeerRelay::run() {
  int64_t stop_at_ns = INT64_MAX;
  bool goes_on = false;
  for (;;) {
    wait(goes_on ? 0 : find_due_ns(stop_at_ns));
    const Work work("relay");
    const int64_t now_ns = read_now_ns();
    if (take_posted(now_ns)) stop_at_ns = std::min(stop_at_ns, now_ns + kStopNs);
    goes_on = false;
    // A piece of each in turn: nobody waits for another's long answer.
    for (const auto& connection : connections_) goes_on |= serve(*connection, now_ns);
    std::erase_if(connections_, [this](const auto& connection) {
      if (connection->is_over) close(*connection);
      return connection->is_over;
    });
    const bool is_stopping = stop_at_ns != INT64_MAX;
    if (is_stopping && (connections_.empty() || now_ns >= stop_at_ns)) break;
  }
  for (const auto& connection : connections_) close(*connection);
  connections_.clear();
}

int64_t PeerRelay::find_due_ns(int64_t stop_at_ns) const {
  const int64_t now_ns = read_now_ns();
  int64_t due_ns = stop_at_ns;
  for (const auto& connection : connections_) {
    due_ns = std::min(due_ns, connection->ends_mono_ns);
    if (connection->is_throttled) {
      due_ns =
          std::min(due_ns, std::max(connection->guard->ready_mono_ns(), now_ns + kThrottledNs));
    }
  }
  return due_ns;
}

// Until a side of a connection can do something, a connection is posted, or `due_mono_ns`.
void PeerRelay::wait(int64_t due_mono_ns) {
  int timeout_ms = -1;
  if (due_mono_ns != INT64_MAX) {
    const int64_t left_ns = std::max<int64_t>(due_mono_ns - read_now_ns(), 0);
    timeout_ms = static_cast<int>((left_ns + kMs - 1) / kMs);
  }
  epoll_event events[kEventsPerWait];
  const int count = epoll_wait(epoll_.get(), events, kEventsPerWait, timeout_ms);
  for (int i = 0; i < count; ++i) {
    auto* const side = static_cast<Side*>(events[i].data.ptr);
    if (side == nullptr) {
      eventfd_t wakes = 0;
      (void)eventfd_read(wake_.get(), &wakes);
      continue;
    }
    if ((events[i].events & ~EPOLLOUT) != 0) side->is_readable = true;
    if ((events[i].events & ~(EPOLLIN | EPOLLRDHUP)) != 0) side->is_writable = true;
  }
}

// True once the relay is to end.
bool PeerRelay::take_posted(int64_t now_mono_ns) {
  std::vector<std::unique_ptr<Connection>> posted;
  bool is_stopping = false;
  {
    const MutexLock lock(mutex_);
    posted.swap(posted_);
    is_stopping = stopping_;
  }
  for (std::unique_ptr<Connection>& connection : posted) {
    connection->guard = std::make_unique<FrameGuard>(get_budget(connection->uid, now_mono_ns));
    for (Side* side : {&connection->client, &connection->server}) {
      epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.ptr = side}};
      // Fails only where the kernel has no memory: then the connection ends.
      if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, side->fd.get(), &event) != 0) {
        connection->is_over = true;
      }
    }
    connections_.push_back(std::move(connection));
  }
  return is_stopping;
}

// Kept for as long as it remembers something: who connects anew does not begin anew.
std::shared_ptr<PeerBudget> PeerRelay::get_budget(uid_t uid, int64_t now_mono_ns) {
  std::erase_if(budgets_, [now_mono_ns](const auto& budget) {
    return budget.second.use_count() == 1 && budget.second->work.ready_mono_ns() <= now_mono_ns;
  });
  std::shared_ptr<PeerBudget>& budget = budgets_[uid];
  if (budget == nullptr) budget = std::make_shared<PeerBudget>();
  return budget;
}

// A piece in each direction. False: nothing to do until something happens.
bool PeerRelay::serve(Connection& c, int64_t now_mono_ns) {
  if (c.is_over) return false;
  const bool moved_down = pass_down(c);
  const bool moved_up = pass_up(c, now_mono_ns);
  if (c.client.ended && c.up.empty() && !c.told_end) {
    c.told_end = true;
    (void)shutdown(c.server.fd.get(), SHUT_WR);  // fails where gRPC has closed it by itself
  }
  if (c.server.ended) c.ends_mono_ns = std::min(c.ends_mono_ns, now_mono_ns + kLastWordsNs);
  c.is_over |=
      c.client.is_deaf || (c.server.ended && c.down.empty()) || now_mono_ns >= c.ends_mono_ns;
  return !c.is_over && (moved_up || moved_down);
}

bool PeerRelay::pass_down(Connection& c) {
  if (!c.down.empty()) {
    if (!c.client.is_writable) return false;
    const size_t sent = c.client.send(c.down.get());
    c.down.drop_front(sent);
    return sent != 0;
  }
  if (!c.server.is_readable) return false;
  const std::span<const char> piece(room_.data(), c.server.receive(room_));
  if (piece.empty()) return false;
  c.guard->note_answer(piece);
  c.down.keep(piece.subspan(c.client.send(piece)));
  return true;
}

bool PeerRelay::pass_up(Connection& c, int64_t now_mono_ns) {
  if (!c.down.empty()) return false;
  if (c.up.empty()) {
    if (!c.client.is_readable) return false;
    c.up.keep(std::span<const char>(room_.data(), c.client.receive(room_)));
    if (c.up.empty()) return false;
  }
  if (c.admitted_bytes == 0) {
    c.admitted_bytes = c.guard->admit(c.up.get(), now_mono_ns);
    if (!c.guard->breach().empty()) {
      note_misuse(c, now_mono_ns);
      return false;
    }
    if (c.admitted_bytes == 0) {
      if (!c.is_throttled) drops_.add(DropCause::kApiThrottled);
      c.is_throttled = true;
      return false;
    }
  }
  if (!c.server.is_writable) return false;
  const size_t sent = c.server.send(c.up.get().first(c.admitted_bytes));
  c.up.drop_front(sent);
  c.admitted_bytes -= sent;
  if (c.up.empty()) c.is_throttled = false;
  return sent != 0;
}

void PeerRelay::note_misuse(Connection& c, int64_t now_mono_ns) {
  c.is_over = true;
  drops_.add(DropCause::kApiMisuse);
  const LogLimiter::Decision decision = misuse_log_.admit(now_mono_ns);
  if (!decision.allowed) return;
  log_warn("api_connection_closed", {{"reason", std::string(c.guard->breach())},
                                     {"uid", std::to_string(c.uid)},
                                     {"suppressed", std::to_string(decision.suppressed_count)}});
}

// The acceptor has a descriptor of the client's socket, too: closing ours neither ends the
// connection nor takes it out of epoll.
void PeerRelay::close(Connection& c) {
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, c.client.fd.get(), nullptr);
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, c.server.fd.get(), nullptr);
  (void)shutdown(c.client.fd.get(), SHUT_RDWR);
}

}  // namespace gpuperf
