#pragma once

// The buffers that CUPTI fills.
//
// acquire and complete are called by CUPTI on whatever thread it likes, the workload's included: no
// lock, and no system call while a buffer is ready. The rest is for the injector's own thread.
// Bounds: kBuffersMax buffers of kBufferBytes; when all are with CUPTI, acquire says no.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuperf::injector {

class Buffers {
 public:
  // NVIDIA advises 1 to 10 MB: 1 MiB is some 4,800 kernels, so that at 200,000 kernels a second a
  // buffer is asked for 40 times a second.
  static constexpr size_t kBufferBytes = 1 << 20;
  static constexpr size_t kBuffersMax = 64;
  // Kept ready for bursts; what is beyond is given back to the system when it comes home.
  static constexpr size_t kReady = 4;
  static constexpr size_t kManyComplete = 8;

  // Any thread. Null = all are out, or the system has no memory.
  uint8_t* acquire();
  // Any thread. With `valid_bytes` of records; 0 = it comes back unused. Bytes that are not of
  // here, of another client whose place we took unawares, are left alone: false.
  bool complete(uint8_t* bytes, size_t valid_bytes);

  struct Completed {
    uint8_t* bytes = nullptr;
    size_t valid_bytes = 0;
  };
  // Injector's thread: the oldest that is complete; bytes = null: none. Give it to release then.
  Completed take();
  void release(uint8_t* bytes);
  // Makes sure that some are ready, their memory touched.
  void stock_up();
  // Gives back to the system what is ready; for when nothing is collected.
  void shrink();

  // Told by `complete` when many wait to be taken; an eventfd.
  void set_wake_fd(int fd) { wake_fd_ = fd; }
  // With CUPTI, or complete and not taken.
  size_t out_count() const { return out_count_.load(std::memory_order_relaxed); }
  size_t made_count() const { return made_count_.load(std::memory_order_relaxed); }

 private:
  struct Header;
  uint8_t* make();
  void unmake(uint8_t* bytes);
  // Replaces one entry of made_. False: there is none such.
  bool replace_made(uint8_t* from, uint8_t* to);

  std::atomic<uint8_t*> made_[kBuffersMax] = {};
  std::atomic<uint8_t*> ready_[kReady] = {};
  std::atomic<Header*> complete_ = nullptr;  // newest first
  std::atomic<size_t> complete_count_ = 0;
  std::atomic<size_t> made_count_ = 0;
  std::atomic<size_t> out_count_ = 0;
  int wake_fd_ = -1;         // set once, before the first buffer is out
  Header* taken_ = nullptr;  // injector's thread: oldest first
};

}  // namespace gpuperf::injector
