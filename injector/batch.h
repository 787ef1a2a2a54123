#pragma once

// Packs records into session_abi.h messages. Injector's thread.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "injector/daemon_link.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

class Batch {
 public:
  explicit Batch(DaemonLink& link) : link_(link) {}

  // Maximum message size, from the daemon's control message.
  void set_limit(uint32_t bytes);
  // Sends the packed records if `length_bytes` more would not fit.
  void make_room(size_t length_bytes, uint64_t now_ms);
  // Adds a dictionary entry. The length must be a multiple of 8 and must fit.
  void add_entry(const void* record, size_t length_bytes) { add(record, length_bytes); }
  // Adds a record, which is counted. It must fit.
  void add_record(const void* record, size_t length_bytes) {
    add(record, length_bytes);
    ++counted_;
  }
  // Whether this many bytes of messages would be accepted or queued now.
  bool has_room_for(size_t bytes) const { return link_.has_room(bytes); }
  void send(uint64_t now_ms);
  // Discards the packed records: their ids belong to another connection.
  void clear();

  uint64_t sent_records() const { return sent_records_; }
  // Packed records that the daemon did not take in time.
  uint64_t refused_records() const { return refused_records_; }
  // Dictionary entries were lost too: the daemon does not know what we think it knows.
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
