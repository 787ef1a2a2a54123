#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/high_mark.h"
#include "daemon/base/listen_address.h"
#include "daemon/base/result.h"
#include "daemon/export/http_connection.h"
#include "daemon/export/http_message.h"
#include "daemon/model/drops.h"
#include "daemon/model/self_report.h"

namespace gpuperf {

struct HttpLimits {
  // At once. A scrape holds one for milliseconds, a browser six.
  size_t connections = 512;
  // Of those, of one address (HttpPeer::share).
  size_t connections_per_address = 256;
  // All of it, from the accept to the request's last byte.
  std::chrono::milliseconds request_time{5'000};
  // From the answer's first byte to its last. Longer than Prometheus' default scrape timeout of
  // 10 s: a reader that slow has given up.
  std::chrono::milliseconds answer_time{15'000};
  // For a client that is refused to read why.
  std::chrono::milliseconds draining_time{1'000};
  // All answers that wait for their readers; one that several take counts once.
  size_t answer_bytes = size_t{64} << 20;
};

// An HTTP server on one thread, where no client waits for another.
//
// Why it is our own: docs/decisions/0022-http-server.md.
// Thread: one of its own, where handlers are called; they must not wait.
// Bounds: see HttpLimits and HttpRequestReader; one request per connection, GET, HEAD and POST. A
// new connection is never refused: beyond the bound the one is closed that has been idle for
// longest, of the same address, or of the address that has most. Each refusal counts with its
// reason, a DropCause::kHttp….
// If accepting fails (no descriptors are left), that is logged and tried again every second.
class HttpListener {
 public:
  // Listens before it returns; port 0 becomes the port it got. The error names address and cause.
  static Result<std::unique_ptr<HttpListener>> start(HostPort& address,
                                                     std::vector<HttpRoute> routes,
                                                     const HttpLimits& limits, DropCounters& drops);
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  // Closes the socket and every connection. No handler is called afterwards. Any number of times,
  // on one thread.
  void stop();
  // How full its bounds are. Any thread.
  void fill(SelfReport& report);

 private:
  using Moment = HttpConnection::Moment;
  using Connections = std::unordered_map<uint64_t, std::unique_ptr<HttpConnection>>;
  class Answers;

  HttpListener(HostPort address, Fd epoll, std::shared_ptr<Answers> answers,
               std::vector<HttpRoute> routes, const HttpLimits& limits, DropCounters& drops);
  Status listen();
  Status watch(int operation, int fd, uint64_t tag, uint32_t events) const;
  void watch_phase(const HttpConnection& connection, uint64_t id);
  void run();
  void on_ready(uint64_t tag, uint32_t events);
  Moment find_deadline(const HttpConnection& connection) const;
  int find_timeout_ms() const;
  void close_late();

  void accept_some();
  void pause_accepting(const Status& why);
  void resume_accepting();
  void add(Fd socket, HttpPeer peer);
  void make_room(const HttpPeer::Share& share);
  void close_idlest(const HttpPeer::Share& share);
  void close(Connections::iterator connection);

  // Each may close the connection.
  void serve(HttpConnection& connection, uint64_t id);
  void on_request(HttpConnection& connection, uint64_t id);
  void take_answers();
  void answer(HttpConnection& connection, uint64_t id, HttpResponse response);
  void finish(HttpConnection& connection, uint64_t id);

  void hold(const HttpBody& body);
  void let_go(const HttpBody& body);
  void keep_within_answer_bytes(uint64_t newest_id);

  // Set once in the constructor.
  const Fd epoll_;
  const std::shared_ptr<Answers> answers_;
  const std::vector<HttpRoute> routes_;
  const HttpLimits limits_;
  DropCounters& drops_;
  std::atomic<bool> stopping_ = false;
  HighMark open_connections_, held_answers_;  // of connections_ and answer_bytes_
  // Its own thread only, while that runs.
  HostPort address_;
  Fd listening_;  // none while accepting is paused
  Moment now_;    // of this turn
  Moment accept_again_ = Moment::max();
  std::vector<char> room_;  // for what is read
  uint64_t last_id_ = 0;
  Connections connections_;
  std::map<HttpPeer::Share, size_t> shares_;         // connections by address
  std::unordered_map<const void*, size_t> readers_;  // of bodies that count
  size_t answer_bytes_ = 0;                          // of all of those, once each
  std::thread thread_;                               // last: it uses all of the above
};

}  // namespace gpuperf
