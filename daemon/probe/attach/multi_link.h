#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/probe/attach/kernel_abi.h"

namespace gpuperf {

// One link that puts a BPF program on many places of a file.
struct MultiLink {
  int program_fd = -1;
  int file_fd = -1;
  uint32_t attach_type = kAttachUprobeMulti;
  uint32_t flags = 0;
  std::span<const uint64_t> offsets;     // in the file
  std::span<const uint64_t> cookies;     // one for each
  std::span<const uint64_t> semaphores;  // offsets, one for each, 0 = none; empty = none at all
};

// `what`: for the error, which is the kernel's.
Result<Fd> create_multi_link(const MultiLink& link, std::string_view what);

}  // namespace gpuperf
