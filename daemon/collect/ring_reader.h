#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

// Takes records out of BPF rings. Unlike libbpf's it maps of a ring what it reads, while it reads
// it: mapped pages count as resident memory, and libbpf maps every page twice.
//
// Thread: one. The rings' descriptors must outlive it.
// Promises: a ring's records in order, each once; those that came before consume() was called,
// up to the first that is still being written.
class RingReader {
 public:
  using OnRecord = std::function<void(std::span<const std::byte>)>;

  RingReader();
  ~RingReader();

  // `size_bytes`: of its data, a power of two.
  Status add(int ring_fd, std::string_view name, size_t size_bytes);
  // Every ring in turn, in the order they were added. An error: what is left stays in its ring.
  Status consume(const OnRecord& on_record);
  // The most bytes that waited in each ring since the last call, when consume() was called, in the
  // order they were added; and how many can.
  struct Level {
    uint64_t used_bytes = 0;
    uint64_t size_bytes = 0;
  };
  std::vector<Level> take_levels();

 private:
  class Pages;
  struct Ring;
  static Status consume(Ring& ring, const OnRecord& on_record);

  std::vector<Ring> rings_;
};

}  // namespace gpuperf
