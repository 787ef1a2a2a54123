#include "injector/buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include "injector/own_memory.h"

namespace gpuperf::injector {

// Follows the buffer's bytes, in a page of its own: CUPTI never sees it.
struct Buffers::Header {
  uint8_t* bytes;
  size_t valid_bytes;
  Header* next;
};

namespace {
constexpr size_t kMappedBytes = Buffers::kBufferBytes + 4096;
}  // namespace

Buffers::Mapped* Buffers::find(const uint8_t* bytes) {
  for (Mapped& mapped : mapped_) {
    if (mapped.bytes.load(std::memory_order_acquire) == bytes) return &mapped;
  }
  return nullptr;
}

uint8_t* Buffers::make() {
  if (made_count_.fetch_add(1, std::memory_order_relaxed) >= kBuffersMax) {
    made_count_.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  for (Mapped& mapped : mapped_) {
    bool is_idle = true;
    if (mapped.is_idle.compare_exchange_strong(is_idle, false, std::memory_order_acquire)) {
      return mapped.bytes.load(std::memory_order_relaxed);
    }
  }
  auto* const bytes = static_cast<uint8_t*>(map_zeroes(kMappedBytes));
  for (Mapped& mapped : mapped_) {
    uint8_t* none = nullptr;
    if (bytes == nullptr) break;
    if (mapped.bytes.compare_exchange_strong(none, bytes, std::memory_order_acq_rel)) return bytes;
  }
  // No memory, or another thread has just made the last one idle.
  if (bytes != nullptr) (void)munmap(bytes, kMappedBytes);
  made_count_.fetch_sub(1, std::memory_order_relaxed);
  return nullptr;
}

void Buffers::unmake(uint8_t* bytes) {
  (void)madvise(bytes, kMappedBytes, MADV_DONTNEED);
  find(bytes)->is_idle.store(true, std::memory_order_release);
  made_count_.fetch_sub(1, std::memory_order_relaxed);
}

uint8_t* Buffers::acquire() {
  uint8_t* bytes = nullptr;
  for (auto& slot : ready_) {
    bytes = slot.exchange(nullptr, std::memory_order_acquire);
    if (bytes != nullptr) break;
  }
  if (bytes == nullptr) bytes = make();
  if (bytes == nullptr) return nullptr;
  find(bytes)->is_out.store(true, std::memory_order_relaxed);
  out_count_.fetch_add(1, std::memory_order_relaxed);
  return bytes;
}

bool Buffers::complete(uint8_t* bytes, size_t valid_bytes) {
  Mapped* const mapped = find(bytes);
  if (mapped == nullptr || !mapped->is_out.exchange(false)) return false;
  auto* header = reinterpret_cast<Header*>(bytes + kBufferBytes);
  header->bytes = bytes;
  header->valid_bytes = valid_bytes;
  header->next = complete_.load(std::memory_order_relaxed);
  while (!complete_.compare_exchange_weak(header->next, header, std::memory_order_release)) {
  }
  if (complete_count_.fetch_add(1, std::memory_order_relaxed) + 1 == kManyComplete) {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));  // non-blocking
  }
  return true;
}

Buffers::Completed Buffers::take() {
  if (taken_ == nullptr) {
    Header* newest = complete_.exchange(nullptr, std::memory_order_acquire);
    while (newest != nullptr) {
      Header* next = newest->next;
      newest->next = taken_;
      taken_ = newest;
      newest = next;
    }
    if (taken_ == nullptr) return {};
  }
  Header* oldest = taken_;
  taken_ = oldest->next;
  complete_count_.fetch_sub(1, std::memory_order_relaxed);
  return {oldest->bytes, oldest->valid_bytes};
}

void Buffers::release(uint8_t* bytes) {
  out_count_.fetch_sub(1, std::memory_order_relaxed);
  for (auto& slot : ready_) {
    uint8_t* empty = nullptr;
    if (slot.compare_exchange_strong(empty, bytes, std::memory_order_release)) return;
  }
  unmake(bytes);
}

void Buffers::stock_up() {
  for (auto& slot : ready_) {
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    uint8_t* bytes = make();
    if (bytes == nullptr) return;
    // Prevents page faults on a workload thread while the first records are written.
    (void)madvise(bytes, kMappedBytes, MADV_WILLNEED);
    for (size_t at = 0; at < kMappedBytes; at += 4096) bytes[at] = 0;
    uint8_t* empty = nullptr;
    if (!slot.compare_exchange_strong(empty, bytes, std::memory_order_release)) unmake(bytes);
  }
}

void Buffers::shrink() {
  for (auto& slot : ready_) {
    uint8_t* bytes = slot.exchange(nullptr, std::memory_order_acquire);
    if (bytes != nullptr) unmake(bytes);
  }
}

}  // namespace gpuperf::injector
