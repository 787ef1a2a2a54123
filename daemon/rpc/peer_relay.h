#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/log.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/model/drops.h"
#include "daemon/rpc/frame_guard.h"

namespace gpuperf {

// Stands between the clients of the API's socket and gRPC: passes bytes both ways and lets
// FrameGuard decide which of a client's.
//
// Thread: one of its own for all connections; post_connection on any. The counters must outlive it.
// Owns the clients' sockets, and one end of a pair whose other end is gRPC's.
// Bounds: kRoomBytes wait in each direction of a connection. A client that does not take what gRPC
// says is not listened to either, so what gRPC has to answer is bounded, too. One that breaks a
// bound is closed, counts DropCause::kApiMisuse and is logged, once a second; one that asks for
// more than its user may per second waits, and counts DropCause::kApiThrottled.
// When a side closes, the other hears of it after what was said before; what gRPC says last waits
// kLastWords for a client to take it.
class PeerRelay {
 public:
  static Result<std::unique_ptr<PeerRelay>> start(DropCounters& drops);
  // Once gRPC has closed its ends. Connections it has not closed end here, after kStopTime.
  ~PeerRelay();
  PeerRelay(const PeerRelay&) = delete;
  PeerRelay& operator=(const PeerRelay&) = delete;

  // The end for gRPC, which does not block. `client` must not block either; it is shut down where
  // no descriptor is left.
  Result<Fd> post_connection(Fd client, uid_t uid);

 private:
  struct Side;
  class Waiting;
  struct Connection;

  PeerRelay(Fd epoll, Fd wake, DropCounters& drops);
  void run();
  // On its own thread.
  int64_t find_due_ns(int64_t stop_at_ns) const;
  void wait(int64_t due_mono_ns);
  bool take_posted(int64_t now_mono_ns);
  std::shared_ptr<PeerBudget> get_budget(uid_t uid, int64_t now_mono_ns);
  bool serve(Connection& connection, int64_t now_mono_ns);
  // True: something moved, and more may.
  bool pass_down(Connection& connection);
  bool pass_up(Connection& connection, int64_t now_mono_ns);
  void note_misuse(Connection& connection, int64_t now_mono_ns);
  void close(Connection& connection);

  // Set once in start.
  const Fd epoll_;
  const Fd wake_;
  DropCounters& drops_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Its own thread only.
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<uid_t, std::shared_ptr<PeerBudget>> budgets_;
  std::vector<char> room_;
  LogLimiter misuse_log_{1};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpuperf
