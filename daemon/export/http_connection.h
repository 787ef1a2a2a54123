#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/export/http_message.h"
#include "daemon/export/http_peer.h"
#include "daemon/export/http_request_reader.h"

namespace gpuperf {

// A client's connection: takes one request, sends one answer, and waits for nothing.
//
// Thread: HttpListener's. Owns the socket. Bounds: a request is at most
// HttpRequestReader::kMaxBytes; of an answer it keeps one reference. Not here: deadlines, and which
// connections there may be (HttpListener).
class HttpConnection {
 public:
  using Moment = std::chrono::steady_clock::time_point;
  enum class Phase {
    kReading,    // the request arrives
    kAnswering,  // the answer is being made
    kSending,    // the client takes the answer
    kDraining,   // answered before all was read: what comes is thrown away, so that the client
                 // reads the answer; a close at once would reset the connection
  };
  enum class Step {
    kWaits,  // for the client
    kDone,   // with this phase
    kEnded,  // the client has gone
  };

  HttpConnection(Fd socket, HttpPeer peer, Moment now);

  int fd() const { return socket_.get(); }
  Phase phase() const { return phase_; }
  const HttpPeer& peer() const { return peer_; }
  Moment phase_began() const { return phase_began_; }
  // Since when it has kept its place for nothing: in kReading since its accept, however many bytes
  // come since; in kSending since the client took something.
  Moment idle_since() const { return idle_since_; }
  bool has_sent_anything() const { return reader_.has_begun(); }
  bool has_surplus() const { return reader_.has_surplus() || reader_.refusal_status() != 0; }
  const HttpBody& body() const { return response_.body; }

  // kReading. `room`: for what is read. kDone: the request is whole, or refused.
  Step read(std::span<char> room);
  // Not 0: no request, but the status that says why.
  int refusal_status() const { return reader_.refusal_status(); }
  // To kAnswering.
  HttpRequest release_request(Moment now);
  // To kSending.
  void begin_answer(HttpResponse response, Moment now);
  Step send(Moment now);
  // To kDraining.
  void begin_draining(Moment now);
  // kEnded, too, once the client has sent more than any that means well has on the way.
  Step drain(std::span<char> room);

 private:
  void enter(Phase phase, Moment now);

  // Set once in the constructor.
  const Fd socket_;
  const HttpPeer peer_;
  Phase phase_ = Phase::kReading;
  Moment phase_began_;
  Moment idle_since_;
  HttpRequestReader reader_;
  bool is_head_request_ = false;
  std::string head_;  // of the answer
  HttpResponse response_;
  size_t sent_bytes_ = 0;  // of head and body
  size_t drained_bytes_ = 0;
};

}  // namespace gpuperf
