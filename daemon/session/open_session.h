#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "daemon/base/token_bucket.h"
#include "daemon/model/session.h"
#include "daemon/session/decode_session.h"
#include "daemon/session/session_peer.h"
#include "daemon/session/session_socket.h"
#include "daemon/session/thread_ids.h"

namespace gpuperf {

// One connection, from its accept to its end. Ingest thread only.
struct OpenSession {
  enum class Phase {
    kGreeting,  // its HELLO is to come
    kNaming,    // welcomed; not read from while its pod's name is asked for
    kOpen,
  };

  OpenSession(uint64_t session_id, Fd connection, SessionPeer who, uint64_t records_per_second,
              uint64_t bytes_per_second)
      : id(session_id),
        socket(std::move(connection), who.pid),
        peer(std::move(who)),
        records(records_per_second),
        bytes(bytes_per_second) {}

  const uint64_t id;
  SessionSocket socket;
  SessionPeer peer;
  Phase phase = Phase::kGreeting;
  int64_t phase_ends_mono_ns = 0;  // of greeting: then closed; of naming: then read unnamed
  std::string full_bound;          // not empty = only waits to be refused, for this reason
  uint16_t version = 0;            // spoken; of greeting 0
  SessionOpened opened;            // of naming: to be told
  AttachFacts attach;
  // What was received.
  SessionTables tables;
  std::optional<ThreadIds> threads;
  std::function<uint32_t(uint32_t)> find_thread;
  TokenBucket records;
  TokenBucket bytes;
  uint64_t received_records = 0;
  uint64_t rejected_records = 0;
  // What is to be sent.
  std::optional<SessionOrder> unsent_order;
  SessionOrder sent_order;
  bool tells_progress = false;
  uint32_t sent_messages = 0;
  // Where it stands in the round.
  bool has_input = false;      // as far as is known: nothing was found missing since epoll said so
  bool process_ended = false;  // what waits in the socket is still read
  bool is_queued = false;      // in the round
  int64_t paused_until_mono_ns = 0;
};

}  // namespace gpuperf
