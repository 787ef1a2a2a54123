#include "daemon/rpc/peer_acceptor.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

namespace gpuperf {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPause{1};  // a descriptor may be free by then

// The peer at the moment of its connect. nullopt = it cannot be known.
std::optional<ucred> find_credentials(const Fd& connection) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return std::nullopt;
  }
  return peer;
}

}  // namespace

Result<std::unique_ptr<PeerAcceptor>> PeerAcceptor::start(Fd listening, PeerLimits limits,
                                                          DropCounters& drops, Take take,
                                                          Gone gone) {
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return errno_status(errno, "make an eventfd to end the API's accepting");
  return std::unique_ptr<PeerAcceptor>(new PeerAcceptor(
      std::move(listening), std::move(stop), limits, drops, std::move(take), std::move(gone)));
}

PeerAcceptor::PeerAcceptor(Fd listening, Fd stop, PeerLimits limits, DropCounters& drops, Take take,
                           Gone gone)
    : listening_(std::move(listening)),
      stop_(std::move(stop)),
      limits_(limits),
      drops_(drops),
      take_(std::move(take)),
      gone_(std::move(gone)),
      thread_([this] { run(); }) {}

PeerAcceptor::~PeerAcceptor() {
  (void)eventfd_write(stop_.get(), 1);  // cannot fail: the counter is far from full
  thread_.join();
}

void PeerAcceptor::run() {
  std::vector<pollfd> watched;
  for (;;) {
    if (wait(watched) < 0) continue;  // a signal
    if (watched[0].revents != 0) return;
    const Moment now = steady_clock::now();
    for (size_t i = 0; i < peers_.size(); ++i) look_at(peers_[i], watched[i + 2].revents, now);
    std::erase_if(peers_, [this](const Peer& peer) {
      if (peer.ended && peer.handed_on && gone_ != nullptr) gone_(peer.uid);
      return peer.ended;
    });
    if (watched[1].revents != 0) accept_one(now);
    open_.note(peers_.size());
  }
}

// Until something happens, the first silence is too long, or accepting goes on.
int PeerAcceptor::wait(std::vector<pollfd>& watched) const {
  const Moment now = steady_clock::now();
  const bool paused = now < paused_until_;
  Moment next = paused ? paused_until_ : Moment::max();
  watched = {{stop_.get(), POLLIN, 0}, {paused ? -1 : listening_.get(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    // Nothing asked of a connection handed on: POLLHUP, both sides closed, comes unasked.
    watched.push_back({peer.connection.get(), static_cast<short>(peer.handed_on ? 0 : POLLIN), 0});
    if (!peer.handed_on) next = std::min(next, peer.silent_until);
  }
  int timeout_ms = -1;
  if (next != Moment::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now);
    timeout_ms = static_cast<int>(std::max<int64_t>(left.count(), 0));
  }
  return poll(watched.data(), watched.size(), timeout_ms);
}

void PeerAcceptor::look_at(Peer& peer, short events, Moment now) {
  if ((events & (POLLHUP | POLLERR)) != 0) {
    peer.ended = true;
    return;
  }
  if (peer.handed_on) return;
  char first = 0;
  if ((events & POLLIN) != 0 &&
      recv(peer.connection.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
    peer.ended = true;  // a client that only looks whether somebody listens
  } else if ((events & POLLIN) != 0) {
    Fd given(fcntl(peer.connection.get(), F_DUPFD_CLOEXEC, 0));
    peer.handed_on = given.valid();
    peer.ended = !given.valid();
    if (given.valid()) take_(std::move(given), peer.uid);
  } else {
    peer.ended = now >= peer.silent_until;
  }
}

// One a round: whoever has left meanwhile is seen before the next one needs a place.
void PeerAcceptor::accept_one(Moment now) {
  Fd connection(accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (connection.valid()) {
    add(std::move(connection), now);
  } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
    log_warn("api_accept_paused",
             {{"cause", std::string(errno_status(errno, "accept").message())},
              {"hint", "clients wait; raise the daemon's limit of open files"}});
    paused_until_ = now + kPause;
  }
}

bool PeerAcceptor::has_place(uid_t uid) const {
  if (uid == 0) return peers_.size() < limits_.connections;
  const auto own = static_cast<size_t>(std::ranges::count(peers_, uid, &Peer::uid));
  return own < limits_.per_user && peers_.size() < limits_.connections - limits_.kept_for_root;
}

void PeerAcceptor::add(Fd connection, Moment now) {
  const std::optional<ucred> who = find_credentials(connection);
  if (!who) return;
  if (has_place(who->uid)) {
    peers_.push_back({.connection = std::move(connection),
                      .uid = who->uid,
                      .silent_until = now + limits_.silence});
    return;
  }
  drops_.add(DropCause::kApiConnectionsFull);
  const auto now_ns = std::chrono::nanoseconds(now.time_since_epoch()).count();
  const LogLimiter::Decision decision = refused_log_.admit(now_ns);
  if (!decision.allowed) return;
  log_warn("api_connection_refused", {{"reason", "too many connections"},
                                      {"open", std::to_string(peers_.size())},
                                      {"uid", std::to_string(who->uid)},
                                      {"pid", std::to_string(who->pid)},
                                      {"suppressed", std::to_string(decision.suppressed_count)}});
}

}  // namespace gpuperf
