#include "injector/batch.h"

#include "injector/clocks.h"

namespace gpuperf::injector {
namespace {
// Fits the longest entry and a record after it.
constexpr uint32_t kShortestLimitBytes = 4096;
}  // namespace

void Batch::set_limit(uint32_t bytes) {
  if (bytes < kShortestLimitBytes) bytes = kShortestLimitBytes;
  limit_bytes_ = bytes < GPUPERF_MESSAGE_BYTES_MAX ? bytes : GPUPERF_MESSAGE_BYTES_MAX;
}

void Batch::make_room(size_t length_bytes, uint64_t now_ms) {
  if (used_bytes_ + length_bytes > limit_bytes_) send(now_ms);
}

void Batch::send(uint64_t now_ms) {
  if (records_ == 0) return;
  gpuperf_batch batch = {};
  batch.header.kind = GPUPERF_MESSAGE_BATCH;
  batch.header.length_bytes = static_cast<uint32_t>(used_bytes_);
  batch.record_count = records_;
  batch.records_bytes = static_cast<uint32_t>(used_bytes_ - sizeof(batch));
  batch.sent_unix_ns = read_unix_ns();
  std::memcpy(bytes_, &batch, sizeof(batch));
  if (link_.send(reinterpret_cast<gpuperf_message*>(bytes_), now_ms)) {
    sent_records_ += counted_;
  } else {
    refused_records_ += counted_;
    lost_entries_ |= records_ != counted_;
  }
  used_bytes_ = sizeof(gpuperf_batch);
  records_ = 0;
  counted_ = 0;
}

void Batch::clear() {
  refused_records_ += counted_;
  used_bytes_ = sizeof(gpuperf_batch);
  records_ = 0;
  counted_ = 0;
  lost_entries_ = false;
}

}  // namespace gpuperf::injector
