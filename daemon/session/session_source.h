#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/bounded_queue.h"
#include "daemon/base/clock.h"
#include "daemon/base/clock_set_watch.h"
#include "daemon/base/fd.h"
#include "daemon/base/log.h"
#include "daemon/base/mutex.h"
#include "daemon/base/realtime_offset.h"
#include "daemon/base/result.h"
#include "daemon/base/shares.h"
#include "daemon/model/drops.h"
#include "daemon/model/session.h"
#include "daemon/session/open_session.h"
#include "daemon/session/session_listener.h"
#include "injector/session_abi.h"

namespace gpuperf {

struct SessionLimits {
  size_t sessions = 1'024;                  // an eighth of them kept for root
  size_t sessions_per_user = 768;           // at most; Shares says what is left to the next one
  size_t sessions_per_process = 2;          // one that connects anew overlaps its dying connection
  uint64_t records_per_second = 2'000'000;  // of one session; beyond, it is read from later
  std::chrono::nanoseconds hello_timeout = std::chrono::seconds(5);
  std::chrono::nanoseconds naming_timeout = std::chrono::seconds(2);  // for the pod's name
  uint64_t name_bytes = uint64_t{16} << 20;  // of one session; further names stay empty
  // Images of GPU modules that have come in part: of all sessions, a quarter of it kept for root
  // and one process may have. A further one is not read.
  uint64_t cubin_bytes = uint64_t{64} << 20;
};

// The ingest thread: takes the connections of injected processes, checks who they are, decodes what
// they send and hands batches of events to the loop; tells them what to collect.
//
// Owns its thread between start and stop, the socket and its file. The clock and counters must
// outlive it. Peers are not trusted and not waited for: sessions are served in turn, a bounded
// piece each; one that sends more than its share is read from later, one that breaks the contract
// is closed, one that does not read misses all orders but the latest. When the loop is behind (its
// queue full) nothing is read: what waits stays in the peers' sockets, and they count what they
// cannot send. Everything left out is counted (DropCause::kSession…).
class SessionSource {
 public:
  using Batch = std::vector<SessionEvent>;
  // How many sessions were told, or will be as soon as they read. Called on the ingest thread; by
  // post_order or stop where there is none.
  using OrderDone = std::function<void(Result<size_t>)>;
  struct Setup {
    std::string socket_path;
    SessionLimits limits;
    SessionOrder order;         // for new sessions
    bool hooked_calls = false;  // launch hooks may record the calls that launch
    bool allocations = true;    // of device memory may be recorded
    uint32_t flush_interval_ms = 250;
    std::string proc_root = "/proc";
    std::function<Owner(const ProcessKey&)> find_owner;
    std::function<bool()> may_wait;        // whether `order` may say that new sessions record later
    std::function<bool(Owner&)> name_pod;  // false = the answer is still to come
    std::function<void()> on_batch;        // called on the ingest thread after each is queued
  };
  static constexpr size_t kQueueBatches = 32;

  // The socket is there from then on; connections are taken from start() on.
  static Result<std::unique_ptr<SessionSource>> make(Setup setup, const Clock& clock,
                                                     DropCounters& drops);
  ~SessionSource();

  void start();
  // Takes what waits in the sockets, for a moment at most, closes all sessions, queues their end
  // where there is room, and ends the thread.
  void stop();
  std::optional<Batch> try_pop() { return queue_.try_pop(); }     // any thread
  size_t take_highest_queued() { return queue_.take_highest(); }  // any thread
  // Of images of GPU modules that have come in part. Any thread.
  uint64_t get_cubin_bytes() const { return cubin_bytes_; }
  uint64_t max_cubin_bytes() const { return setup_.limits.cubin_bytes; }
  // Any thread. NOT_FOUND: no such session; RESOURCE_EXHAUSTED: too many orders wait.
  void post_order(SessionTarget target, SessionOrder order, OrderDone done);
  // Any thread. Has each session that is open say at once, and then with each STATUS, how many
  // calls its process makes (SessionStatus::hooked_calls), or no longer.
  void post_progress(bool is_wanted);
  // Any thread. Takes a connection that was made in a process it was attached to, as if that had
  // connected. Closed where sessions are no longer taken.
  void post_connection(Fd connection, const AttachFacts& attach);

 private:
  using Sessions = std::map<uint64_t, std::unique_ptr<OpenSession>>;
  struct PostedOrder {
    SessionTarget target;
    SessionOrder order;
    OrderDone done;
  };

  struct PostedConnection {
    Fd connection;
    AttachFacts attach;
  };

  SessionSource(Setup setup, SessionListener listener, ClockSetWatch clock_watch,
                const Clock& clock, DropCounters& drops);
  void run();
  Status watch(int fd, uint64_t tag, uint32_t events);
  void wait(int timeout_ms);
  int find_timeout_ms(int64_t now_mono_ns) const;
  void on_ready(uint64_t tag, uint32_t events);
  void sample_clock();
  void look_at_deadlines(int64_t now_mono_ns);
  void finish();

  void accept_some();
  void pause_accepting(const Status& why);
  void add(Fd connection, const AttachFacts& attach);
  void take_connections();
  std::string take_place(const SessionPeer& peer);  // empty = it has one; else which bound is full
  void give_place_back(const OpenSession& session);

  void queue_if_due(OpenSession& session, int64_t now_mono_ns);
  void serve_round();
  void serve(OpenSession& session);
  void close(OpenSession& session, std::string reason);
  void close_malformed(OpenSession& session, const Status& why);

  Status take_message(OpenSession& session, std::span<const std::byte> packet);
  Status greet(OpenSession& session, std::span<const std::byte> packet);
  Status take_batch(OpenSession& session, std::span<const std::byte> packet);
  Status take_status(OpenSession& session, std::span<const std::byte> packet);
  void name_or_open(OpenSession& session, int64_t now_mono_ns);
  void count_rejects(OpenSession& session, const SessionRejects& rejects);

  void take_orders();
  void ask_progress(bool is_wanted);
  void send_order(OpenSession& session);
  void refuse(SessionSocket& socket, const SessionPeer& peer, gpuperf_session_refusal reason,
              std::string_view why);

  void push(SessionEvent event, size_t cost_bytes);
  bool has_room();
  bool flush();

  // Set once in the constructor.
  const Setup setup_;
  const Clock& clock_;
  DropCounters& drops_;
  BoundedQueue<Batch> queue_{kQueueBatches};
  Fd epoll_;
  Fd wake_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> cubin_bytes_ = 0;  // cubin_room_.used()
  // Ingest thread only.
  SessionListener listener_;
  ClockSetWatch clock_watch_;
  RealtimeOffset offset_;
  SessionOrder order_;  // for new sessions
  Sessions sessions_;
  Shares places_;
  Shares cubin_room_;
  size_t refused_count_ = 0;  // of sessions_, those that only wait to be refused
  uint64_t last_id_ = 0;
  std::deque<uint64_t> round_;   // sessions to be served, the next first; some have gone
  std::vector<std::byte> room_;  // for one message
  Batch pending_;
  size_t pending_bytes_ = 0;
  bool is_behind_ = false;
  int64_t accept_again_mono_ns_ = 0;  // 0 = accepting
  int64_t next_sample_mono_ns_ = 0;
  int64_t next_look_mono_ns_ = 0;
  ThreadScanBudget scan_budget_;
  LogLimiter log_{1};
  Mutex mutex_;
  std::vector<PostedOrder> posted_ ABSL_GUARDED_BY(mutex_);
  std::optional<bool> posted_progress_ ABSL_GUARDED_BY(mutex_);
  std::vector<PostedConnection> connections_ ABSL_GUARDED_BY(mutex_);
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpuperf
