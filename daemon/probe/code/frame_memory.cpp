#include "daemon/probe/code/frame_memory.h"

#include <algorithm>
#include <utility>

namespace gpuperf {

bool FrameMemory::read(uint64_t vaddr, std::span<std::byte> bytes) {
  if (block_bytes_ == 0) {
    failure_ = file_.read(vaddr, bytes);
    return failure_.ok();
  }
  // Also when it lies before the block: the difference is huge then.
  if (vaddr - block_vaddr_ > block_.size() ||
      block_.size() - (vaddr - block_vaddr_) < bytes.size()) {
    if (!read_block(vaddr, bytes.size())) return false;
  }
  std::ranges::copy(std::span(block_).subspan(vaddr - block_vaddr_, bytes.size()), bytes.begin());
  return true;
}

bool FrameMemory::read_block(uint64_t vaddr, uint64_t size_bytes) {
  Result<std::vector<std::byte>> block =
      file_.read_up_to(vaddr, std::max(size_bytes, block_bytes_));
  failure_ = block.status();
  if (!block.ok()) return false;
  if (block->size() < size_bytes) {
    failure_ = absl::OutOfRangeError("an address outside the file");
    return false;
  }
  block_ = *std::move(block);
  block_vaddr_ = vaddr;
  return true;
}

Status make_frame_status(frame_result result, const FrameMemory& memory, const std::string& what) {
  switch (result) {
    case FRAME_OK:
      return absl::OkStatus();
    case FRAME_NONE:
      return absl::NotFoundError("no unwind information: " + what);
    case FRAME_DAMAGED:
      return absl::DataLossError("damaged unwind information: " + what);
    case FRAME_UNKNOWN_FORM:
      return absl::UnimplementedError("unwind information of an unknown form: " + what);
    case FRAME_TOO_LARGE:
      return absl::ResourceExhaustedError("unwind information too large: " + what);
    case FRAME_UNREADABLE:
      return memory.failure();
  }
  __builtin_unreachable();
}

}  // namespace gpuperf
