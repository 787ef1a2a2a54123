#pragma once

#include <httplib.h>

#include <set>

#include "daemon/base/listen_address.h"
#include "daemon/base/mutex.h"
#include "daemon/base/result.h"

namespace gpuperf {

// cpp-httplib's server with bounds on what clients can hold.
//
// httplib alone queues accepted connections without limit, waits for each read anew (a client that
// sends a byte every few seconds keeps its thread for hours), shares its port with a second daemon
// (SO_REUSEPORT), gives up for good when accept fails once, and waits for idle clients in stop().
//
// Thread: `run` on one of its own until `stop`, which any thread may call. Routes are set before.
// Bounds: kThreads requests at once and kWaiting behind them; accepting pauses beyond that and the
// kernel's backlog takes over. One request per connection; it must have arrived after
// kRequestTimeout, and its answer taken kAnswerTimeout after it was made, or the connection is
// closed.
// If accepting fails (the host is out of descriptors), that is logged and tried again every second.
class HttpListener final : public httplib::Server {
 public:
  HttpListener();
  ~HttpListener() override;

  // Listens; port 0 becomes the port it got. The error names address and cause.
  Status open(HostPort& address);
  // Answers until `stop`. `open` came before.
  void run();
  // Closes the socket and every connection; `run` returns soon after. Any number of times.
  void stop();

 private:
  class Pool;
  friend class Pool;

  bool process_and_close_socket(socket_t connection) override;

  // Set in open.
  HostPort address_;
  Mutex mutex_;
  ConditionVariable changed_;
  // httplib is in its loop and owns a listening socket.
  bool accepting_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<socket_t> connections_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuperf
