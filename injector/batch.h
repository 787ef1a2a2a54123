#pragma once

// Packs records into messages of the contract. Injector's thread.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "injector/daemon_link.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

class Batch {
 public:
  explicit Batch(DaemonLink& link) : link_(link) {}

  // Longest message, from the daemon's ruling.
  void set_limit(uint32_t bytes);
  // Sends what is packed when `length_bytes` more would not fit.
  void make_room(size_t length_bytes, uint64_t now_ms);
  // A dictionary entry, of a length that is a multiple of 8. There is room.
  void add_entry(const void* record, size_t length_bytes) { add(record, length_bytes); }
  // A record that counts. There is room.
  void add_record(const void* record, size_t length_bytes) {
    add(record, length_bytes);
    ++counted_;
  }
  // Whether so many bytes of messages would be taken or queued now.
  bool has_room_for(size_t bytes) const { return link_.has_room(bytes); }
  void send(uint64_t now_ms);
  // Forgets what is packed: its ids were another connection's.
  void clear();

  uint64_t sent_records() const { return sent_records_; }
  // Records that were packed and that the daemon did not take in time.
  uint64_t refused_records() const { return refused_records_; }
  // Entries of dictionaries went with them: what the daemon knows is not what we think it does.
  bool has_lost_entries() const { return lost_entries_; }

 private:
  void add(const void* record, size_t length_bytes) {
    std::memcpy(bytes_ + used_bytes_, record, length_bytes);
    used_bytes_ += length_bytes;
    ++records_;
  }

  DaemonLink& link_;
  uint32_t limit_bytes_ = GPUPERF_MESSAGE_BYTES_MAX;
  size_t used_bytes_ = sizeof(gpuperf_batch);
  uint32_t records_ = 0;  // dictionary entries included
  uint32_t counted_ = 0;
  uint64_t sent_records_ = 0;
  uint64_t refused_records_ = 0;
  bool lost_entries_ = false;
  alignas(8) uint8_t bytes_[GPUPERF_MESSAGE_BYTES_MAX] = {};
};

}  // namespace gpuperf::injector
