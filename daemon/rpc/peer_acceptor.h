#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/high_mark.h"
#include "daemon/base/log.h"
#include "daemon/base/result.h"
#include "daemon/model/drops.h"
#include "daemon/model/self_report.h"

namespace gpuperf {

struct PeerLimits {
  size_t connections = 256;   // at once, silent ones included
  size_t kept_for_root = 32;  // of those, so that nobody can lock out who could mend it
  size_t per_user = 64;       // of the rest, so that one user leaves places to the others
  // A client's first bytes are sent with its connect; one that is silent holds a place for nothing.
  std::chrono::milliseconds silence{5000};
};

// Accepts the connections of a listening socket and hands each on with the user who made it, by the
// kernel's word: gRPC 1.51 has no way to ask for it. Over TCP the kernel says kNoUser of everybody.
//
// Thread: one of its own, where `take` and `gone` are called. The counters must outlive it.
// Owns the listening socket, and a second descriptor of every connection handed on, to see it end.
// Bounds: see PeerLimits. A connection beyond them is closed at once, counts
// DropCause::kApiConnectionsFull and is logged, once a second; one that stays silent is closed. Out
// of descriptors, it leaves connections in the kernel's queue and tries again every second.
// Not here: what a peer may do (RpcServer).
class PeerAcceptor {
 public:
  static constexpr uid_t kNoUser = static_cast<uid_t>(-1);

  // `connection` does not block. `uid` is the peer's at its connect, as this process's user
  // namespace sees it: root of another namespace is somebody else here.
  using Take = std::function<void(Fd connection, uid_t uid)>;
  // A connection of that user that was handed on has ended.
  using Gone = std::function<void(uid_t uid)>;

  static Result<std::unique_ptr<PeerAcceptor>> start(Fd listening, PeerLimits limits,
                                                     DropCounters& drops, Take take,
                                                     Gone gone = nullptr);
  // Neither runs after it. Connections handed on stay open.
  ~PeerAcceptor();
  // How many connections there are. Any thread.
  void fill(SelfReport& report) {
    report.add(Bound::kApiConnections, open_.take(), limits_.connections);
  }
  PeerAcceptor(const PeerAcceptor&) = delete;
  PeerAcceptor& operator=(const PeerAcceptor&) = delete;

 private:
  using Moment = std::chrono::steady_clock::time_point;
  struct Peer {
    Fd connection;
    uid_t uid = 0;
    Moment silent_until;  // then closed; means nothing once handed on
    bool handed_on = false;
    bool ended = false;
  };

  PeerAcceptor(Fd listening, Fd stop, PeerLimits limits, DropCounters& drops, Take take, Gone gone);
  void run();
  int wait(std::vector<pollfd>& watched) const;
  void look_at(Peer& peer, short events, Moment now);
  void accept_one(Moment now);
  bool has_place(uid_t uid) const;
  void add(Fd connection, Moment now);

  // Set once in the constructor.
  const Fd listening_;
  const Fd stop_;
  const PeerLimits limits_;
  DropCounters& drops_;
  const Take take_;
  const Gone gone_;  // may be null
  HighMark open_;    // of peers_
  // Its own thread only.
  std::vector<Peer> peers_;
  Moment paused_until_;  // not accepting before
  LogLimiter refused_log_{1};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpuperf
