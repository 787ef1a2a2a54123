#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bpf/frame_cursor.h"
#include "daemon/base/result.h"
#include "daemon/probe/code/code_file.h"

namespace gpuperf {

// A file by its virtual addresses, for bpf/frame_cursor.h and what rests on it.
//
// Value; the file must outlive it. With `block_bytes` it reads at least so much at once and keeps
// it: for whoever passes over all of a section.
class FrameMemory {
 public:
  explicit FrameMemory(const CodeFile& file, uint64_t block_bytes = 0)
      : file_(file), block_bytes_(block_bytes) {}

  // Fills `bytes`; false where the file does not have all of them.
  bool read(uint64_t vaddr, std::span<std::byte> bytes);
  // Why the last read failed.
  const Status& failure() const { return failure_; }

 private:
  bool read_block(uint64_t vaddr, uint64_t size_bytes);

  const CodeFile& file_;
  const uint64_t block_bytes_;
  std::vector<std::byte> block_;
  uint64_t block_vaddr_ = 0;
  Status failure_;
};

// The error that a result other than FRAME_OK stands for; `what` was to be read.
Status make_frame_status(frame_result result, const FrameMemory& memory, const std::string& what);

}  // namespace gpuperf

// What frame_cursor.h asks for; `memory` is a FrameMemory.
static inline int frame_read(void* memory, __u64 address, void* to, __u32 size_bytes) {
  auto& file = *static_cast<gpuperf::FrameMemory*>(memory);
  return file.read(address, std::span(static_cast<std::byte*>(to), size_bytes)) ? 0 : -1;
}
