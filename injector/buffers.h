#pragma once

// The buffers that CUPTI fills.
//
// CUPTI calls acquire and complete on any thread, including the workload's: no lock, and no system
// call while a buffer is ready. The rest is for the injector's thread. Bounds: kBuffersMax buffers
// of kBufferBytes; when CUPTI holds all of them, acquire returns null.
//
// A buffer that is no longer needed gives its memory back and stays mapped: while CUPTI is
// finalized, a thread in a launch may still write into a buffer that was completed (seen on an H100
// once in some 3,000 times, with 16 threads launching).

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuperf::injector {

class Buffers {
 public:
  // NVIDIA recommends 1 to 10 MB. 1 MiB holds about 4,800 kernels, so at 200,000 kernels a second
  // CUPTI requests a buffer 40 times a second.
  static constexpr size_t kBufferBytes = 1 << 20;
  static constexpr size_t kBuffersMax = 64;
  // Kept ready for bursts. Returned buffers beyond that give their memory back.
  static constexpr size_t kReady = 4;
  static constexpr size_t kManyComplete = 8;

  // Any thread. Null = all buffers are out, or the system has no memory.
  uint8_t* acquire();
  // Any thread. The buffer holds `valid_bytes` of records; 0 = returned unused. False: the buffer
  // is not out: it belongs to another client that we displaced unknowingly, or comes a second time.
  // It is left alone.
  bool complete(uint8_t* bytes, size_t valid_bytes);

  struct Completed {
    uint8_t* bytes = nullptr;
    size_t valid_bytes = 0;
  };
  // Injector's thread. The oldest completed buffer; bytes = null: none. Pass it to release
  // afterwards.
  Completed take();
  void release(uint8_t* bytes);
  bool has_complete() const {
    return taken_ != nullptr || complete_.load(std::memory_order_relaxed) != nullptr;
  }
  // Fills the ready slots with buffers whose memory is already faulted in.
  void stock_up();
  // Gives the ready buffers' memory back. For when nothing is collected.
  void shrink();

  // An eventfd that `complete` signals when many buffers wait to be taken.
  void set_wake_fd(int fd) { wake_fd_ = fd; }
  // Held by CUPTI, or complete and not taken.
  size_t out_count() const { return out_count_.load(std::memory_order_relaxed); }
  // Those with memory.
  size_t made_count() const { return made_count_.load(std::memory_order_relaxed); }

 private:
  struct Header;
  struct Mapped {
    std::atomic<uint8_t*> bytes = nullptr;  // stays
    std::atomic<bool> is_idle = false;      // has no memory
    std::atomic<bool> is_out = false;       // CUPTI has it
  };
  Mapped* find(const uint8_t* bytes);
  uint8_t* make();
  void unmake(uint8_t* bytes);

  Mapped mapped_[kBuffersMax];
  std::atomic<uint8_t*> ready_[kReady] = {};
  std::atomic<Header*> complete_ = nullptr;  // newest first
  std::atomic<size_t> complete_count_ = 0;
  std::atomic<size_t> made_count_ = 0;
  std::atomic<size_t> out_count_ = 0;
  int wake_fd_ = -1;         // set once, before the first buffer is handed out
  Header* taken_ = nullptr;  // injector's thread: oldest first
};

}  // namespace gpuperf::injector
