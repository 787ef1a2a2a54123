#pragma once

// Bytes of an injected process -> values. Nothing is believed: every length, count, id, enum, flag,
// text and time is checked on a copy. What breaks the contract's structure is an error, after which
// nothing more of that peer can be made sense of; what is only a record without sense is left out
// and counted. Nothing here throws, blocks or keeps a reference to the bytes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/realtime_offset.h"
#include "daemon/base/result.h"
#include "daemon/base/shares.h"
#include "daemon/model/session.h"

namespace gpuperf {

// The front of every message. `kind` may be one that is not known.
struct SessionMessage {
  uint16_t version = 0;
  uint16_t kind = 0;
  bool operator==(const SessionMessage&) const = default;
};
// `packet` must be exactly one message.
Result<SessionMessage> decode_session_message(std::span<const std::byte> packet);

// What a process says about itself.
struct SessionHello {
  uint32_t version = 0;
  uint32_t oldest_version = 0;
  uint64_t capabilities = 0;
  uint64_t process_start_ticks = 0;  // 0 = it does not know
  int64_t mono_ns = 0;               // of its own time namespace
  int64_t unix_ns = 0;
  uint32_t pid = 0;  // in its own pid namespace
  uint32_t connection = 0;
  std::string injector_version;
  std::string comm;
  bool operator==(const SessionHello&) const = default;
};
Result<SessionHello> decode_session_hello(std::span<const std::byte> packet);

// Records, or statuses, that were left out.
struct SessionRejects {
  uint64_t unknown_kind = 0;
  uint64_t unknown_id = 0;  // of a name, shape or place that was not announced
  uint64_t bad_value = 0;
  uint64_t bad_time = 0;
  uint64_t names_full = 0;   // texts of names: the names themselves stay known
  uint64_t cubins_full = 0;  // images of modules
  bool operator==(const SessionRejects&) const = default;
};

// The image of a module that has come in part.
struct CubinParts {
  uint64_t crc = 0;
  uint32_t size_bytes = 0;  // of the whole; 0 = none is on its way
  uint32_t received_bytes = 0;
  bool is_kept = false;  // `bytes` has them, and the room they take is taken
  std::vector<std::byte> bytes;
};

// Which ids of a session are known: ids are given from 1 up without a gap, so the last says all.
struct SessionTables {
  uint32_t names = 0;
  uint32_t shapes = 0;
  uint32_t places = 0;
  uint64_t name_bytes = 0;
  CubinParts cubin;
};

struct SessionContext {
  uint64_t session_id = 0;
  int64_t now_unix_ns = 0;  // when the message was received
  uint64_t name_bytes_max = 0;
  const RealtimeOffset& clock;
  // The daemon's id of a thread, from that of the peer's pid namespace; 0 = it has gone.
  const std::function<uint32_t(uint32_t tid)>& find_thread;
  // Bytes for images of modules that have come in part, over all sessions, and whose these are.
  Shares& cubin_room;
  Shares::Holder holder;
};
// At the end of the session.
void give_back_cubin_room(Shares& cubin_room, Shares::Holder holder, CubinParts& cubin);

struct DecodedBatch {
  SessionBatch batch;
  SessionRejects rejects;
  uint64_t record_count = 0;     // without names, shapes and places; rejected ones included
  uint64_t near_step_count = 0;  // of those, whose time may be off by a step of the wall clock
};
// After an error `tables` is not to be used again.
Result<DecodedBatch> decode_session_batch(std::span<const std::byte> packet,
                                          const SessionContext& context, SessionTables& tables);

// nullopt = it holds a value that makes no sense. What the daemon itself counts is left at 0.
Result<std::optional<SessionStatus>> decode_session_status(std::span<const std::byte> packet,
                                                           uint64_t session_id);

// Measured records may begin so long before they arrive: a workload that was stopped, or whose
// queue waited for a daemon, is not a liar.
inline constexpr int64_t kSessionOldestNs = int64_t{24} * 3600 * 1'000'000'000;
// And end so long after: the wall clock may just have been set back.
inline constexpr int64_t kSessionFutureNs = int64_t{3600} * 1'000'000'000;

}  // namespace gpuperf
