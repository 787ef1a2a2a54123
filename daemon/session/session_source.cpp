#include "daemon/session/session_source.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "daemon/base/work_watch.h"
#include "daemon/session/session_messages.h"

namespace gpuperf {
namespace {

// Tags of epoll. A session's are twice its id: its socket, and one more: its process.
constexpr uint64_t kWakeTag = UINT64_MAX;
constexpr uint64_t kListenTag = UINT64_MAX - 1;
constexpr uint64_t kClockTag = UINT64_MAX - 2;

constexpr int kEventsPerWait = 64;
// Of one session before the next one's turn: 256 KiB, some 0.1 ms.
constexpr int kMessagesPerTurn = 4;
// Connections before sessions are served again.
constexpr int kAcceptsPerWait = 64;
// An honest record takes at least so much: names and statuses are few.
constexpr uint64_t kBytesPerRecord = 64;
// Receiving and decoding one message costs about as much as so many records.
constexpr uint64_t kRecordsPerMessage = 64;
// What one batch for the loop may hold, as decoded: with kQueueBatches of them 16 MiB wait at most.
constexpr size_t kBatchEvents = 64;
constexpr size_t kBatchBytes = size_t{1} << 19;

constexpr int kNice = 10;

// One of so many sessions is kept for root.
constexpr size_t kRootShare = 8;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSamplePeriodNs = 1'000 * kMs;  // of the wall clock, beside one per message
constexpr int64_t kLookPeriodNs = 5 * kMs;        // at paused and silent sessions
// A connection beyond a bound is refused when its HELLO has come, so that the refusal is read: one
// sent before would be followed by an error of the socket. So long, and so many at once; others are
// refused at once.
constexpr int64_t kRefuseNs = 1'000 * kMs;
constexpr size_t kMaxRefused = 64;
constexpr int64_t kAcceptPauseNs = 1'000 * kMs;  // a descriptor may be free by then
constexpr int kBehindMs = 10;                    // the loop is left so much time
constexpr int64_t kFinishNs = 200 * kMs;         // for what waits in the sockets at the stop

}  // namespace

Result<std::unique_ptr<SessionSource>> SessionSource::make(Setup setup, const Clock& clock,
                                                           DropCounters& drops) {
  RETURN_IF_ERROR(check_session_order(setup.order));
  ASSIGN_OR_RETURN(ClockSetWatch clock_watch, ClockSetWatch::make());
  ASSIGN_OR_RETURN(SessionListener listener, SessionListener::open(setup.socket_path));
  auto source = std::unique_ptr<SessionSource>(new SessionSource(
      std::move(setup), std::move(listener), std::move(clock_watch), clock, drops));
  if (!source->epoll_.valid() || !source->wake_.valid()) {
    return errno_status(errno, "sessions: make an epoll");
  }
  RETURN_IF_ERROR(source->watch(source->wake_.get(), kWakeTag, EPOLLIN));
  RETURN_IF_ERROR(source->watch(source->listener_.fd(), kListenTag, EPOLLIN));
  RETURN_IF_ERROR(source->watch(source->clock_watch_.fd(), kClockTag, EPOLLIN));
  return source;
}

SessionSource::SessionSource(Setup setup, SessionListener listener, ClockSetWatch clock_watch,
                             const Clock& clock, DropCounters& drops)
    : setup_(std::move(setup)),
      clock_(clock),
      drops_(drops),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(std::move(listener)),
      clock_watch_(std::move(clock_watch)),
      offset_(clock),
      order_(setup_.order),
      places_({.total = setup_.limits.sessions,
               .kept_for_root = setup_.limits.sessions / kRootShare,
               .of_user = setup_.limits.sessions_per_user,
               .of_root = setup_.limits.sessions_per_user,
               .of_process = setup_.limits.sessions_per_process}),
      cubin_room_({.total = setup_.limits.cubin_bytes,
                   .kept_for_root = setup_.limits.cubin_bytes / 4,
                   .of_process = setup_.limits.cubin_bytes / 4}),
      room_(GPUPERF_MESSAGE_BYTES_MAX) {}

SessionSource::~SessionSource() { stop(); }

void SessionSource::start() {
  {
    const MutexLock lock(mutex_);
    is_running_ = true;
  }
  thread_ = std::thread([this] { run(); });
}

void SessionSource::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  (void)eventfd_write(wake_.get(), 1);  // full only when a wake-up already waits
  thread_.join();
}

Status SessionSource::watch(int fd, uint64_t tag, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return errno_status(errno, "sessions: epoll_ctl");
}

void SessionSource::run() {
  // Best effort: what is sent can wait in the sockets, and who asks the daemon something cannot.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
  while (!stopping_) {
    const int64_t now_ns = clock_.mono_ns();
    wait(find_timeout_ms(now_ns));
    const Work work("ingest");
    take_connections();
    take_orders();
    look_at_deadlines(clock_.mono_ns());
    serve_round();
    is_behind_ = !flush();
  }
  finish();
}

// Sessions with input that may be read from are never waited for; others at most until something
// is due.
int SessionSource::find_timeout_ms(int64_t now_mono_ns) const {
  if (is_behind_) return kBehindMs;
  if (!round_.empty()) return 0;
  int64_t due_ns = next_sample_mono_ns_;
  if (accept_again_mono_ns_ != 0) due_ns = std::min(due_ns, accept_again_mono_ns_);
  int64_t session_due_ns = INT64_MAX;
  for (const auto& [id, session] : sessions_) {
    if (session->phase == OpenSession::Phase::kNaming) return kBehindMs;
    if (session->phase == OpenSession::Phase::kGreeting) {
      session_due_ns = std::min(session_due_ns, session->phase_ends_mono_ns);
    }
    if (session->has_input) {
      session_due_ns = std::min(session_due_ns, session->paused_until_mono_ns);
    }
  }
  // Not before sessions are looked at again: what one may send meanwhile adds up.
  due_ns = std::min(due_ns, std::max(session_due_ns, next_look_mono_ns_));
  return static_cast<int>(std::max<int64_t>((due_ns - now_mono_ns) / kMs + 1, 0));
}

void SessionSource::wait(int timeout_ms) {
  epoll_event events[kEventsPerWait];
  const int count = epoll_wait(epoll_.get(), events, kEventsPerWait, timeout_ms);
  // The clock first: what the others sent may have been stamped by it after the step.
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kClockTag) on_ready(kClockTag, events[i].events);
  }
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 != kClockTag) on_ready(events[i].data.u64, events[i].events);
  }
}

void SessionSource::on_ready(uint64_t tag, uint32_t events) {
  switch (tag) {
    case kWakeTag: {
      eventfd_t count = 0;
      (void)eventfd_read(wake_.get(), &count);
      return;
    }
    case kClockTag:
      clock_watch_.rearm();
      return sample_clock();
    case kListenTag:
      return accept_some();
  }
  const auto found = sessions_.find(tag / 2);
  if (found == sessions_.end()) return;  // closed meanwhile
  OpenSession& session = *found->second;
  if (tag % 2 == 1) session.process_ended = true;
  if ((events & EPOLLOUT) != 0 && session.unsent_order) send_order(session);
  session.has_input = true;
  queue_if_due(session, clock_.mono_ns());
}

void SessionSource::sample_clock() {
  const auto step = offset_.sample();
  if (!step) return;
  log_warn("wall clock set", {{"step_ns", std::to_string(step->step_ns)}});
  push(ClockStepped{.mono_ns = step->mono_ns, .step_ns = step->step_ns}, 0);
}

void SessionSource::look_at_deadlines(int64_t now_mono_ns) {
  if (now_mono_ns >= next_sample_mono_ns_) {
    sample_clock();
    next_sample_mono_ns_ = now_mono_ns + kSamplePeriodNs;
  }
  if (accept_again_mono_ns_ != 0 && now_mono_ns >= accept_again_mono_ns_) {
    accept_again_mono_ns_ = 0;
    // Fails only where the pause could not take it out either.
    (void)watch(listener_.fd(), kListenTag, EPOLLIN);
  }
  if (now_mono_ns < next_look_mono_ns_) return;
  next_look_mono_ns_ = now_mono_ns + kLookPeriodNs;
  for (auto next = sessions_.begin(); next != sessions_.end();) {
    OpenSession& session = *(next++)->second;  // closing takes it out
    if (session.phase == OpenSession::Phase::kNaming) {
      name_or_open(session, now_mono_ns);
    } else if (session.phase == OpenSession::Phase::kGreeting &&
               now_mono_ns >= session.phase_ends_mono_ns) {
      drops_.add(session.full_bound.empty() ? DropCause::kSessionSilent : DropCause::kSessionsFull);
      close(session, "no HELLO");
      continue;
    }
    queue_if_due(session, now_mono_ns);
  }
}

void SessionSource::finish() {
  std::vector<PostedOrder> left;
  {
    const MutexLock lock(mutex_);
    is_running_ = false;
    left.swap(posted_);
  }
  for (PostedOrder& order : left) order.done(absl::UnavailableError("gpuperfd is stopping"));
  const int64_t end_ns = clock_.mono_ns() + kFinishNs;
  while (!round_.empty() && clock_.mono_ns() < end_ns && flush()) serve_round();
  while (!sessions_.empty()) close(*sessions_.begin()->second, "gpuperfd stopping");
  // The loop has ended and takes what is queued: there is room, and without it nobody is left to
  // tell.
  (void)flush();
}

void SessionSource::accept_some() {
  for (int i = 0; i < kAcceptsPerWait; ++i) {
    Result<Fd> connection = listener_.accept();
    if (absl::IsNotFound(connection.status())) return;
    if (!connection.ok()) return pause_accepting(connection.status());
    add(*std::move(connection), {});
  }
}

void SessionSource::pause_accepting(const Status& why) {
  accept_again_mono_ns_ = clock_.mono_ns() + kAcceptPauseNs;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.fd(), nullptr);  // it is there
  log_warn("new sessions wait", {{"error", std::string(why.message())},
                                 {"hint", "raise the daemon's limit of open files"}});
}

void SessionSource::post_connection(Fd connection, const AttachFacts& attach) {
  {
    const MutexLock lock(mutex_);
    if (!is_running_ || connections_.size() >= kMaxRefused) return;
    connections_.push_back({std::move(connection), attach});
  }
  (void)eventfd_write(wake_.get(), 1);  // full only when a wake-up already waits
}

void SessionSource::take_connections() {
  std::vector<PostedConnection> connections;
  {
    const MutexLock lock(mutex_);
    connections.swap(connections_);
  }
  for (PostedConnection& posted : connections) add(std::move(posted.connection), posted.attach);
}

void SessionSource::add(Fd connection, const AttachFacts& attach) {
  Result<SessionPeer> peer = read_session_credentials(connection);
  if (!peer.ok()) {
    SessionSocket socket(std::move(connection), 0);
    return refuse(socket, {}, GPUPERF_SESSION_REFUSED_IDENTITY,
                  std::string(peer.status().message()));
  }
  const std::string full_bound = take_place(*peer);
  if (!full_bound.empty() && refused_count_ >= kMaxRefused) {
    SessionSocket socket(std::move(connection), peer->pid);
    return refuse(socket, *peer, GPUPERF_SESSION_REFUSED_FULL, full_bound);
  }
  const uint64_t id = ++last_id_;
  auto session = std::make_unique<OpenSession>(id, std::move(connection), *std::move(peer),
                                               setup_.limits.records_per_second,
                                               setup_.limits.records_per_second * kBytesPerRecord);
  session->phase_ends_mono_ns =
      clock_.mono_ns() + (full_bound.empty() ? setup_.limits.hello_timeout.count() : kRefuseNs);
  session->full_bound = full_bound;
  session->attach = attach;
  const Status watched =
      watch(session->socket.fd().get(), 2 * id, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (!watched.ok()) {
    give_place_back(*session);
    return refuse(session->socket, session->peer, GPUPERF_SESSION_REFUSED_FULL,
                  std::string(watched.message()));
  }
  refused_count_ += full_bound.empty() ? 0 : 1;
  sessions_.emplace(id, std::move(session));
}

std::string SessionSource::take_place(const SessionPeer& peer) {
  switch (places_.take({.uid = peer.uid, .pid = peer.pid})) {
    case Shares::Verdict::kTaken:
      return {};
    case Shares::Verdict::kFull:
      return "too many sessions";
    case Shares::Verdict::kUserFull:
      return "too many sessions of one user";
    case Shares::Verdict::kProcessFull:
      return "too many sessions of one process";
  }
  return "too many sessions";  // not reached
}

void SessionSource::give_place_back(const OpenSession& session) {
  if (!session.full_bound.empty()) return;  // never had one
  places_.give_back({.uid = session.peer.uid, .pid = session.peer.pid});
}

// Not one that has to wait: look_at_deadlines() comes back to it.
void SessionSource::queue_if_due(OpenSession& session, int64_t now_mono_ns) {
  if (!session.has_input || session.is_queued || session.phase == OpenSession::Phase::kNaming ||
      now_mono_ns < session.paused_until_mono_ns) {
    return;
  }
  session.is_queued = true;
  round_.push_back(session.id);
}

// Each session once, until the loop is behind.
void SessionSource::serve_round() {
  for (size_t left = round_.size(); left > 0 && has_room(); --left) {
    const auto found = sessions_.find(round_.front());
    round_.pop_front();
    if (found == sessions_.end()) continue;
    found->second->is_queued = false;
    serve(*found->second);  // may end it, or queue it again
  }
}

void SessionSource::serve(OpenSession& session) {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    const SessionSocket::Received received = session.socket.receive(room_);
    switch (received.got) {
      case SessionSocket::Got::kNothing:
        session.has_input = false;
        if (session.process_ended) close(session, "process ended");
        return;
      case SessionSocket::Got::kEnd:
        return close(session, session.process_ended ? "process ended" : "connection closed");
      case SessionSocket::Got::kTooLong:
        return close_malformed(session, absl::InvalidArgumentError("message beyond 64 KiB"));
      case SessionSocket::Got::kForeign:
        drops_.add(DropCause::kSessionForeign);
        break;
      case SessionSocket::Got::kMessage:
        break;
    }
    const int64_t now_ns = clock_.mono_ns();
    session.records.take(kRecordsPerMessage, now_ns);
    session.bytes.take(received.packet.size(), now_ns);
    if (received.got == SessionSocket::Got::kMessage) {
      const uint64_t id = session.id;
      const Status taken = take_message(session, received.packet);
      if (!sessions_.contains(id)) return;  // it was refused
      if (!taken.ok()) return close_malformed(session, taken);
    }
    session.paused_until_mono_ns =
        std::max(session.records.ready_mono_ns(), session.bytes.ready_mono_ns());
    if (session.paused_until_mono_ns > now_ns) {
      drops_.add(DropCause::kSessionThrottled);
      return;
    }
    if (session.phase == OpenSession::Phase::kNaming) return;
  }
  queue_if_due(session, clock_.mono_ns());
}

void SessionSource::close(OpenSession& session, std::string reason) {
  if (session.phase == OpenSession::Phase::kNaming) push(std::move(session.opened), 0);
  if (session.phase != OpenSession::Phase::kGreeting) {
    push(
        SessionClosed{
            .session_id = session.id, .reason = std::move(reason), .mono_ns = clock_.mono_ns()},
        0);
  }
  refused_count_ -= session.full_bound.empty() ? 0 : 1;
  give_place_back(session);
  give_back_cubin_room(cubin_room_, {.uid = session.peer.uid, .pid = session.peer.pid},
                       session.tables.cubin);
  cubin_bytes_ = cubin_room_.used();
  sessions_.erase(session.id);  // its descriptors leave epoll with it
}

void SessionSource::close_malformed(OpenSession& session, const Status& why) {
  drops_.add(DropCause::kSessionMalformed);
  const LogLimiter::Decision decision = log_.admit(clock_.mono_ns());
  if (decision.allowed) {
    log_warn("session broke the contract",
             {{"pid", std::to_string(session.peer.pid)},
              {"uid", std::to_string(session.peer.uid)},
              {"error", std::string(why.message())},
              {"suppressed", std::to_string(decision.suppressed_count)}});
  }
  close(session, "malformed: " + std::string(why.message()));
}

void SessionSource::push(SessionEvent event, size_t cost_bytes) {
  pending_.push_back(std::move(event));
  pending_bytes_ += cost_bytes;
}

bool SessionSource::has_room() {
  if (pending_.size() < kBatchEvents && pending_bytes_ < kBatchBytes) return true;
  return flush();
}

// False while the loop is behind.
bool SessionSource::flush() {
  if (pending_.empty()) return true;
  if (!queue_.try_push(std::move(pending_))) return false;
  pending_ = {};
  pending_bytes_ = 0;
  setup_.on_batch();
  return true;
}

}  // namespace gpuperf
