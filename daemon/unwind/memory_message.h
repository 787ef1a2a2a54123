#pragma once

// What the daemon and its memory worker send each other (base/worker_message.h).
//
//   request: u64 pid | count x (u64 address | u64 bytes)
//   reply:   count x u8 could be read | the bytes of those that could, one after the other

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpuperf {

inline constexpr size_t kMaxMemoryRanges = 64;
inline constexpr size_t kMaxMemoryBytes = (size_t{1} << 20) + (size_t{64} << 10);  // of all ranges

struct MemoryRange {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  bool operator==(const MemoryRange&) const = default;
};

struct MemoryRequest {
  uint32_t pid = 0;
  std::vector<MemoryRange> ranges;
  bool operator==(const MemoryRequest&) const = default;
};

// Of each range; nothing where it could not be read as a whole.
using MemoryReply = std::vector<std::optional<std::string>>;

std::string encode(const MemoryRequest& request);
std::optional<MemoryRequest> decode_memory_request(std::string_view bytes);
std::string encode(const MemoryReply& reply);
// Nothing when it is no reply to such a request.
std::optional<MemoryReply> decode_memory_reply(const MemoryRequest& request,
                                               std::string_view bytes);

}  // namespace gpuperf
