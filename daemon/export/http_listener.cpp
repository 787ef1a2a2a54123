#include "daemon/export/http_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/mutex.h"
#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Phase = HttpConnection::Phase;
using Progress = HttpConnection::Step;

// Tags of epoll; a connection's is its id.
constexpr uint64_t kWakeTag = UINT64_MAX;
constexpr uint64_t kListenTag = UINT64_MAX - 1;

constexpr int kEventsPerTurn = 64;
// Connections before others are served again.
constexpr int kAcceptsPerTurn = 64;
// Connects that wait for their turn while an attacker makes thousands a second: one that finds no
// place here is tried again by its kernel after a second. The kernel takes off what is beyond
// net.core.somaxconn, 4,096 by default.
constexpr int kBacklog = 4'096;
constexpr std::chrono::seconds kAcceptPause{1};  // a descriptor may be free by then
constexpr size_t kReadBytes = size_t{64} * 1024;
// Of the kernel's, for what a client has not taken: without it up to 4 MiB (net.ipv4.tcp_wmem).
constexpr int kSendBufferBytes = 256 * 1024;

std::string explain_refusal(int status) {
  switch (status) {
    case 413:
    case 431:
      return "a request can have at most 64 KiB, headers and body together\n";
    case 501:
      return "the body must have a length or come in chunks\n";
    default:
      return "not an HTTP/1.1 request\n";
  }
}

uint32_t find_wanted_events(Phase phase) {
  switch (phase) {
    case Phase::kReading:
    case Phase::kDraining:
      return EPOLLIN;
    case Phase::kSending:
      return EPOLLOUT;
    case Phase::kAnswering:
      return 0;  // errors come unasked
  }
  return 0;
}

bool matches(const HttpRoute& route, const HttpRequest& request) {
  const std::string_view asked = request.method;
  const std::string_view method = asked == "HEAD" ? std::string_view("GET") : asked;
  if (!route.method.empty() && route.method != method) return false;
  if (!route.path.ends_with('*')) return route.path == request.path;
  return request.path.starts_with(std::string_view(route.path).substr(0, route.path.size() - 1));
}

// What it means that a connection stays in a phase for too long; nullopt = nothing is lost.
std::optional<DropCause> find_late_cause(const HttpConnection& connection) {
  switch (connection.phase()) {
    case Phase::kReading:
      return connection.has_sent_anything() ? DropCause::kHttpRequestLate : DropCause::kHttpSilent;
    case Phase::kSending:
      return DropCause::kHttpAnswerLate;
    case Phase::kAnswering:
    case Phase::kDraining:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

// Answers on their way from the threads that make them. Outlives the listener where one of those
// does.
class HttpListener::Answers {
 public:
  explicit Answers(Fd wake) : wake_(std::move(wake)) {}

  void post(uint64_t id, HttpResponse response) {
    {
      const MutexLock lock(mutex_);
      posted_.emplace_back(id, std::move(response));
    }
    wake();
  }
  void wake() { (void)eventfd_write(wake_.get(), 1); }  // full only when a wake-up already waits
  int fd() const { return wake_.get(); }

  std::vector<std::pair<uint64_t, HttpResponse>> take() {
    eventfd_t count = 0;
    (void)eventfd_read(wake_.get(), &count);
    const MutexLock lock(mutex_);
    return std::exchange(posted_, {});
  }

 private:
  const Fd wake_;
  Mutex mutex_;
  std::vector<std::pair<uint64_t, HttpResponse>> posted_ ABSL_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<HttpListener>> HttpListener::start(HostPort& address,
                                                          std::vector<HttpRoute> routes,
                                                          const HttpLimits& limits,
                                                          DropCounters& drops) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid()) return errno_status(errno, "make an epoll for HTTP");
  auto listener = std::unique_ptr<HttpListener>(
      new HttpListener(address, std::move(epoll), std::make_shared<Answers>(std::move(wake)),
                       std::move(routes), limits, drops));
  RETURN_IF_ERROR(listener->watch(EPOLL_CTL_ADD, listener->answers_->fd(), kWakeTag, EPOLLIN));
  RETURN_IF_ERROR(listener->listen());
  address = listener->address_;
  listener->thread_ = std::thread([raw = listener.get()] { raw->run(); });
  return listener;
}

HttpListener::HttpListener(HostPort address, Fd epoll, std::shared_ptr<Answers> answers,
                           std::vector<HttpRoute> routes, const HttpLimits& limits,
                           DropCounters& drops)
    : epoll_(std::move(epoll)),
      answers_(std::move(answers)),
      routes_(std::move(routes)),
      limits_(limits),
      drops_(drops),
      address_(std::move(address)),
      room_(kReadBytes) {}

HttpListener::~HttpListener() { stop(); }

void HttpListener::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  answers_->wake();
  thread_.join();
  connections_.clear();
  listening_.reset();
}

Status HttpListener::listen() {
  ASSIGN_OR_RETURN(listening_, listen_on(address_, kBacklog));
  // Accepted connections inherit it. Best effort: without it the kernel keeps more for each.
  (void)setsockopt(listening_.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes,
                   sizeof kSendBufferBytes);
  return watch(EPOLL_CTL_ADD, listening_.get(), kListenTag, EPOLLIN);
}

Status HttpListener::watch(int operation, int fd, uint64_t tag, uint32_t events) const {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return absl::OkStatus();
  return errno_status(errno, "HTTP: epoll_ctl");
}

void HttpListener::run() {
  epoll_event events[kEventsPerTurn];
  while (!stopping_) {
    now_ = steady_clock::now();
    const int count = epoll_wait(epoll_.get(), events, kEventsPerTurn, find_timeout_ms());
    now_ = steady_clock::now();
    const Work work("http");
    // New connections last: one may take the place of another whose request is there by now.
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 != kListenTag) on_ready(events[i].data.u64, events[i].events);
    }
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kListenTag) accept_some();
    }
    take_answers();
    close_late();
    if (now_ >= accept_again_) resume_accepting();
  }
}

void HttpListener::on_ready(uint64_t tag, uint32_t events) {
  const auto found = connections_.find(tag);
  if (found == connections_.end()) return;  // a wake-up, or closed meanwhile
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return close(found);
  serve(*found->second, tag);
}

HttpListener::Moment HttpListener::find_deadline(const HttpConnection& connection) const {
  switch (connection.phase()) {
    case Phase::kReading:
      return connection.phase_began() + limits_.request_time;
    case Phase::kSending:
      return connection.phase_began() + limits_.answer_time;
    case Phase::kDraining:
      return connection.phase_began() + limits_.draining_time;
    case Phase::kAnswering:
      return Moment::max();  // the daemon's own time
  }
  return Moment::max();
}

int HttpListener::find_timeout_ms() const {
  Moment next = accept_again_;
  for (const auto& [id, connection] : connections_) {
    next = std::min(next, find_deadline(*connection));
  }
  if (next == Moment::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(next - now_);
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void HttpListener::close_late() {
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    if (now_ < find_deadline(*connection->second)) continue;
    if (const auto cause = find_late_cause(*connection->second)) drops_.add(*cause);
    close(connection);
  }
}

void HttpListener::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    Fd socket(accept4(listening_.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      add(std::move(socket), read_peer(peer));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return pause_accepting(errno_status(errno, "accept"));
    }
  }
}

void HttpListener::pause_accepting(const Status& why) {
  accept_again_ = now_ + kAcceptPause;
  listening_.reset();  // it may be broken for good
  log_error("http_accept_failed", {{"address", format_host_port(address_)},
                                   {"error", std::string(why.message())},
                                   {"hint", "out of file descriptors? trying again"}});
}

void HttpListener::resume_accepting() {
  accept_again_ = Moment::max();
  if (const Status opened = listen(); !opened.ok()) pause_accepting(opened);
}

void HttpListener::add(Fd socket, HttpPeer peer) {
  make_room(peer.share);
  // Of what is still in the kernel once we have closed: otherwise minutes.
  const auto taken_ms = static_cast<unsigned>(limits_.answer_time.count());
  (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &taken_ms, sizeof taken_ms);
  ++shares_[peer.share];
  const uint64_t id = ++last_id_;
  const auto added =
      connections_
          .emplace(id, std::make_unique<HttpConnection>(std::move(socket), std::move(peer), now_))
          .first;
  open_connections_.note(connections_.size());
  HttpConnection& connection = *added->second;
  if (!watch(EPOLL_CTL_ADD, connection.fd(), id, EPOLLIN).ok()) return close(added);
  serve(connection, id);  // most requests are there at once
}

void HttpListener::make_room(const HttpPeer::Share& share) {
  const auto own = shares_.find(share);
  if (own != shares_.end() && own->second >= limits_.connections_per_address) {
    close_idlest(share);
  } else if (connections_.size() >= limits_.connections) {
    const auto largest =
        std::ranges::max_element(shares_, {}, [](const auto& entry) { return entry.second; });
    close_idlest(HttpPeer::Share(largest->first));
  }
}

// Of one address. Those that wait for the daemon come last, those that were refused first.
void HttpListener::close_idlest(const HttpPeer::Share& share) {
  const auto rank = [&](const Connections::value_type& entry) {
    const HttpConnection& connection = *entry.second;
    return std::tuple(connection.peer().share != share, connection.phase() == Phase::kAnswering,
                      connection.phase() != Phase::kDraining, connection.idle_since(), entry.first);
  };
  drops_.add(DropCause::kHttpConnectionsFull);
  close(std::ranges::min_element(connections_, {}, rank));
}

void HttpListener::serve(HttpConnection& connection, uint64_t id) {
  switch (connection.phase()) {
    case Phase::kReading: {
      const Progress progress = connection.read(room_);
      if (progress == Progress::kEnded) return close(connections_.find(id));
      if (progress == Progress::kDone) on_request(connection, id);
      return;
    }
    case Phase::kSending: {
      const Progress progress = connection.send(now_);
      if (progress == Progress::kEnded) return close(connections_.find(id));
      if (progress == Progress::kDone) finish(connection, id);
      return;
    }
    case Phase::kDraining:
      if (connection.drain(room_) != Progress::kWaits) close(connections_.find(id));
      return;
    case Phase::kAnswering:
      return;
  }
}

void HttpListener::on_request(HttpConnection& connection, uint64_t id) {
  const int refusal_status = connection.refusal_status();
  HttpRequest request = connection.release_request(now_);
  if (refusal_status != 0) {
    const bool is_too_large = refusal_status == 413 || refusal_status == 431;
    drops_.add(is_too_large ? DropCause::kHttpRequestTooLarge : DropCause::kHttpMalformed);
    return answer(connection, id,
                  make_text_response(refusal_status, explain_refusal(refusal_status)));
  }
  watch_phase(connection, id);
  const HttpReply reply = [answers = answers_, id](HttpResponse response) {
    answers->post(id, std::move(response));
  };
  const auto route = std::ranges::find_if(
      routes_, [&](const HttpRoute& candidate) { return matches(candidate, request); });
  if (route == routes_.end()) return reply(make_text_response(404, "not found\n"));
  try {
    route->handle(std::move(request), reply);
  } catch (const std::exception&) {
    reply(make_text_response(500, "internal error: out of memory?\n"));
  }
}

void HttpListener::take_answers() {
  for (auto& [id, response] : answers_->take()) {
    const auto found = connections_.find(id);
    if (found == connections_.end() || found->second->phase() != Phase::kAnswering) continue;
    answer(*found->second, id, std::move(response));
  }
}

void HttpListener::answer(HttpConnection& connection, uint64_t id, HttpResponse response) {
  connection.begin_answer(std::move(response), now_);
  hold(connection.body());
  const Progress progress = connection.send(now_);
  if (progress == Progress::kEnded) return close(connections_.find(id));
  if (progress == Progress::kDone) return finish(connection, id);
  watch_phase(connection, id);
  keep_within_answer_bytes(id);
}

void HttpListener::finish(HttpConnection& connection, uint64_t id) {
  if (!connection.has_surplus()) return close(connections_.find(id));
  let_go(connection.body());
  connection.begin_draining(now_);
  watch_phase(connection, id);
}

void HttpListener::watch_phase(const HttpConnection& connection, uint64_t id) {
  // Fails only for a descriptor that is not watched: each is since it was accepted.
  (void)watch(EPOLL_CTL_MOD, connection.fd(), id, find_wanted_events(connection.phase()));
}

void HttpListener::hold(const HttpBody& body) {
  if (!body.is_counted) return;
  if (++readers_[body.bytes.data()] == 1) answer_bytes_ += body.bytes.size();
  held_answers_.note(answer_bytes_);
}

void HttpListener::let_go(const HttpBody& body) {
  if (!body.is_counted) return;
  const auto readers = readers_.find(body.bytes.data());
  if (--readers->second != 0) return;
  readers_.erase(readers);
  answer_bytes_ -= body.bytes.size();
  held_answers_.note(answer_bytes_);
}

// Beyond the bound the readers that have taken nothing for longest lose their answers, but not the
// newest.
void HttpListener::keep_within_answer_bytes(uint64_t newest_id) {
  const auto rank = [&](const Connections::value_type& entry) {
    const HttpConnection& connection = *entry.second;
    const bool holds = connection.phase() == Phase::kSending && connection.body().is_counted;
    return std::tuple(!holds || entry.first == newest_id, connection.idle_since());
  };
  while (answer_bytes_ > limits_.answer_bytes) {
    const auto slowest = std::ranges::min_element(connections_, {}, rank);
    if (std::get<0>(rank(*slowest))) return;
    drops_.add(DropCause::kHttpAnswersFull);
    close(slowest);
  }
}

void HttpListener::fill(SelfReport& report) {
  const uint64_t answer_bytes = held_answers_.take();
  report.add(Bound::kHttpConnections, open_connections_.take(), limits_.connections);
  report.add(Bound::kHttpAnswers, answer_bytes, limits_.answer_bytes);
  report.add(MemoryPart::kAnswers, answer_bytes);
}

void HttpListener::close(Connections::iterator connection) {
  const HttpConnection& closed = *connection->second;
  if (closed.phase() == Phase::kSending) let_go(closed.body());
  const auto share = shares_.find(closed.peer().share);
  if (--share->second == 0) shares_.erase(share);
  connections_.erase(connection);
  open_connections_.note(connections_.size());
}

}  // namespace gpuperf
