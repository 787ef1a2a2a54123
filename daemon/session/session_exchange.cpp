// What is said in a session, in both directions: the other half of SessionSource.

#include <spdlog/fmt/fmt.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "daemon/session/session_messages.h"
#include "daemon/session/session_source.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxPostedOrders = 8'256;  // from people, and one for each session
constexpr size_t kStatusCostBytes = sizeof(gpuperf_status);

template <typename... Entries>
size_t count_bytes(const std::vector<Entries>&... of_kinds) {
  return (... + (of_kinds.capacity() * sizeof(Entries)));
}

// While it waits for the loop.
size_t get_cost_bytes(const SessionBatch& batch) {
  size_t bytes = sizeof batch + count_bytes(batch.names, batch.shapes, batch.places, batch.kernels,
                                            batch.copies, batch.apis, batch.graphs, batch.syncs,
                                            batch.memory, batch.overheads, batch.gaps);
  for (const CubinLines& cubin : batch.cubins) bytes += get_bytes(cubin);
  for (const KernelName& name : batch.names) bytes += name.text.capacity();
  return bytes;
}

}  // namespace

// An error: it has broken the contract and is to be closed.
Status SessionSource::take_message(OpenSession& session, std::span<const std::byte> packet) {
  ASSIGN_OR_RETURN(const SessionMessage message, decode_session_message(packet));
  if (session.phase == OpenSession::Phase::kGreeting) {
    if (message.kind == GPUPERF_MESSAGE_HELLO) return greet(session, packet);
    return absl::InvalidArgumentError("a first message that is no HELLO");
  }
  switch (message.kind) {
    case GPUPERF_MESSAGE_BATCH:
      return take_batch(session, packet);
    case GPUPERF_MESSAGE_STATUS:
      return take_status(session, packet);
    case GPUPERF_MESSAGE_HELLO:
    case GPUPERF_MESSAGE_WELCOME:
    case GPUPERF_MESSAGE_CONTROL:
    case GPUPERF_MESSAGE_REFUSE:
      return absl::InvalidArgumentError(
          fmt::format("a message of kind {} out of its place", message.kind));
    default:
      drops_.add(DropCause::kSessionUnknownKind);
      return absl::OkStatus();
  }
}

Status SessionSource::greet(OpenSession& session, std::span<const std::byte> packet) {
  ASSIGN_OR_RETURN(const SessionHello hello, decode_session_hello(packet));
  const auto turn_away = [&](gpuperf_session_refusal reason, std::string_view why) {
    refuse(session.socket, session.peer, reason, why);
    close(session, "");
    return absl::OkStatus();
  };
  if (!session.full_bound.empty()) {
    return turn_away(GPUPERF_SESSION_REFUSED_FULL, session.full_bound);
  }
  if (hello.oldest_version > GPUPERF_SESSION_VERSION) {
    return turn_away(GPUPERF_SESSION_REFUSED_VERSION,
                     fmt::format("speaks contract version {} at least", hello.oldest_version));
  }
  SessionPeer& peer = session.peer;
  Status known = read_session_process(setup_.proc_root, session.socket.fd(), peer);
  if (known.ok()) {
    const int64_t offset_ns = clock_.unix_ns() - clock_.mono_ns();
    known = check_session_claims(setup_.proc_root, peer, hello, offset_ns);
  }
  if (!known.ok()) return turn_away(GPUPERF_SESSION_REFUSED_IDENTITY, std::string(known.message()));
  if (peer.pidfd.valid()) {
    const Status watched = watch(peer.pidfd.get(), 2 * session.id + 1, EPOLLIN | EPOLLET);
    if (!watched.ok())
      return turn_away(GPUPERF_SESSION_REFUSED_FULL, std::string(watched.message()));
  }
  const int64_t now_ns = clock_.mono_ns();
  session.version =
      static_cast<uint16_t>(std::min<uint32_t>(hello.version, GPUPERF_SESSION_VERSION));
  session.threads.emplace(setup_.proc_root, peer.pid, peer.is_pid_namespace_ours, scan_budget_,
                          peer.uid);
  session.find_thread = [&threads = *session.threads](uint32_t tid) { return threads.find(tid); };
  const ProcessKey process = make_process_key(peer);
  session.opened = {.session_id = session.id,
                    .process = process,
                    .owner = setup_.find_owner(process),
                    .uid = peer.uid,
                    .contract_version = session.version,
                    .injector_version = hello.injector_version,
                    .mono_ns = now_ns,
                    .attach = session.attach};
  session.phase = OpenSession::Phase::kNaming;
  session.phase_ends_mono_ns = now_ns + setup_.limits.naming_timeout.count();
  session.socket.expect_named_senders();
  session.unsent_order = order_;
  if (order_.is_later) session.unsent_order->is_later = setup_.may_wait();
  send_order(session);
  name_or_open(session, now_ns);
  return absl::OkStatus();
}

// Not reported before its pod is named, or cannot be soon: it has one owner for good.
void SessionSource::name_or_open(OpenSession& session, int64_t now_mono_ns) {
  if (!setup_.name_pod(session.opened.owner) && now_mono_ns < session.phase_ends_mono_ns) return;
  push(std::move(session.opened), 0);
  session.phase = OpenSession::Phase::kOpen;
}

Status SessionSource::take_batch(OpenSession& session, std::span<const std::byte> packet) {
  sample_clock();  // its stamps may be of after a step
  session.threads->begin_message();
  const SessionContext context{.session_id = session.id,
                               .now_unix_ns = clock_.unix_ns(),
                               .name_bytes_max = setup_.limits.name_bytes,
                               .clock = offset_,
                               .find_thread = session.find_thread,
                               .cubin_room = cubin_room_,
                               .holder = {.uid = session.peer.uid, .pid = session.peer.pid}};
  ASSIGN_OR_RETURN(DecodedBatch decoded, decode_session_batch(packet, context, session.tables));
  cubin_bytes_ = cubin_room_.used();
  session.records.take(decoded.record_count, clock_.mono_ns());
  session.received_records += decoded.record_count;
  count_rejects(session, decoded.rejects);
  drops_.add(DropCause::kSessionNearStep, decoded.near_step_count);
  const size_t cost_bytes = get_cost_bytes(decoded.batch);
  push(std::move(decoded.batch), cost_bytes);
  return absl::OkStatus();
}

Status SessionSource::take_status(OpenSession& session, std::span<const std::byte> packet) {
  ASSIGN_OR_RETURN(auto status, decode_session_status(packet, session.id));
  if (!status) {
    drops_.add(DropCause::kSessionBadValue);
    return absl::OkStatus();
  }
  status->received_records = session.received_records;
  status->rejected_records = session.rejected_records;
  push(*std::move(status), kStatusCostBytes);
  return absl::OkStatus();
}

void SessionSource::count_rejects(OpenSession& session, const SessionRejects& rejects) {
  drops_.add(DropCause::kSessionUnknownKind, rejects.unknown_kind);
  drops_.add(DropCause::kSessionUnknownId, rejects.unknown_id);
  drops_.add(DropCause::kSessionBadValue, rejects.bad_value);
  drops_.add(DropCause::kSessionBadTime, rejects.bad_time);
  drops_.add(DropCause::kSessionNamesFull, rejects.names_full);
  drops_.add(DropCause::kSessionCubinsFull, rejects.cubins_full);
  session.rejected_records +=
      rejects.unknown_kind + rejects.unknown_id + rejects.bad_value + rejects.bad_time;
}

void SessionSource::post_order(SessionTarget target, SessionOrder order, OrderDone done) {
  Status status = check_session_order(order);
  if (status.ok()) {
    const MutexLock lock(mutex_);
    if (!is_running_) {
      status = absl::UnavailableError("gpuperfd accepts no sessions: it is stopping");
    } else if (posted_.size() >= kMaxPostedOrders) {
      status = absl::ResourceExhaustedError("too many orders at once; try again");
    } else {
      posted_.push_back({target, order, std::move(done)});
    }
  }
  if (!status.ok()) return done(std::move(status));
  (void)eventfd_write(wake_.get(), 1);  // full only when a wake-up already waits
}

void SessionSource::post_progress(bool is_wanted) {
  {
    const MutexLock lock(mutex_);
    posted_progress_ = is_wanted;
  }
  (void)eventfd_write(wake_.get(), 1);
}

// Repeats the last order of each session. A repeated order would start a burst again, so sessions
// whose last order was a burst are left out: they report no progress.
void SessionSource::ask_progress(bool is_wanted) {
  for (const auto& [id, session] : sessions_) {
    if (session->phase == OpenSession::Phase::kGreeting) continue;
    if (session->sent_order.burst_flags != 0) continue;
    session->tells_progress = is_wanted;
    if (!session->unsent_order) session->unsent_order = session->sent_order;
    send_order(*session);
  }
}

void SessionSource::take_orders() {
  std::vector<PostedOrder> orders;
  std::optional<bool> is_progress_wanted;
  {
    const MutexLock lock(mutex_);
    orders.swap(posted_);
    is_progress_wanted = std::exchange(posted_progress_, std::nullopt);
  }
  if (is_progress_wanted) ask_progress(*is_progress_wanted);
  for (PostedOrder& posted : orders) {
    const SessionTarget& target = posted.target;
    const bool is_for_all = target.session_id == 0 && target.pid == 0;
    if (is_for_all) {
      order_ = posted.order;
      order_.burst_flags = 0;  // those to come have not asked for it
      order_.burst_ms = 0;
    }
    size_t told = 0;
    for (const auto& [id, session] : sessions_) {
      if (session->phase == OpenSession::Phase::kGreeting) continue;
      if (target.session_id != 0 && target.session_id != id) continue;
      if (target.pid != 0 && target.pid != session->peer.pid) continue;
      session->unsent_order = posted.order;
      send_order(*session);
      ++told;
    }
    if (told == 0 && !is_for_all) {
      const std::string which =
          target.session_id != 0 ? "session " + std::to_string(target.session_id) + " is not open"
                                 : "process " + std::to_string(target.pid) + " has no open session";
      posted.done(absl::NotFoundError(which + "; those there are: gpuperfctl sessions"));
    } else {
      posted.done(told);
    }
  }
}

// One that does not read gets the latest when it does: epoll says when there is room.
void SessionSource::send_order(OpenSession& session) {
  // The first message of ours is the WELCOME; it finds an empty socket.
  const uint16_t kind =
      session.sent_messages == 0 ? GPUPERF_MESSAGE_WELCOME : GPUPERF_MESSAGE_CONTROL;
  gpuperf_control message =
      make_session_control(kind, {.version = session.version, .sequence = session.sent_messages},
                           session.id, *session.unsent_order, setup_.flush_interval_ms);
  if (session.tells_progress) message.enabled_kinds |= GPUPERF_SESSION_PROGRESS;
  if (setup_.hooked_calls) message.enabled_kinds |= GPUPERF_SESSION_HOOKED_CALLS;
  if (!setup_.allocations) message.enabled_kinds &= ~GPUPERF_SESSION_BIT(GPUPERF_SESSION_MEMORY);
  const auto sent = session.socket.send(std::as_bytes(std::span(&message, 1)));
  if (sent == SessionSocket::Sent::kNoRoom) return;
  ++session.sent_messages;
  session.sent_order = *session.unsent_order;
  // Failed: the peer has gone, as the next look into the socket will show.
  session.unsent_order.reset();
}

void SessionSource::refuse(SessionSocket& socket, const SessionPeer& peer,
                           gpuperf_session_refusal reason, std::string_view why) {
  drops_.add(reason == GPUPERF_SESSION_REFUSED_FULL ? DropCause::kSessionsFull
                                                    : DropCause::kSessionRefused);
  const gpuperf_refuse message =
      make_session_refusal({.version = GPUPERF_SESSION_VERSION, .sequence = 0}, reason);
  // Nothing else is in that direction; one that has gone needs no answer.
  (void)socket.send(std::as_bytes(std::span(&message, 1)));
  const LogLimiter::Decision decision = log_.admit(clock_.mono_ns());
  if (!decision.allowed) return;
  log_warn("session refused", {{"reason", std::string(why)},
                               {"pid", std::to_string(peer.pid)},
                               {"uid", std::to_string(peer.uid)},
                               {"suppressed", std::to_string(decision.suppressed_count)}});
}

}  // namespace gpuperf
