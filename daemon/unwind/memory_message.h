#pragma once

// What the daemon and its memory worker send each other (base/worker_message.h).
//
//   for memory: u32 pid | u32 0 | count x (u64 address | u64 bytes)
//     reply:    count x u8 could be read | the bytes of those that could, one after the other
//   for maps:   u32 pid | u32 1 | u64 bytes at most
//     reply:    u32 errno, 0 = read | the text

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
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

// The text of /proc/PID/maps.
struct MapsRequest {
  uint32_t pid = 0;
  uint64_t max_bytes = 0;
  bool operator==(const MapsRequest&) const = default;
};

// Of each range; nothing where it could not be read as a whole.
using MemoryReply = std::vector<std::optional<std::string>>;

using ReaderRequest = std::variant<MemoryRequest, MapsRequest>;
std::string encode(const MemoryRequest& request);
std::string encode(const MapsRequest& request);
std::optional<ReaderRequest> decode_reader_request(std::string_view bytes);
std::string encode(const MemoryReply& reply);
// Nothing when it is no reply to such a request.
std::optional<MemoryReply> decode_memory_reply(const MemoryRequest& request,
                                               std::string_view bytes);

}  // namespace gpuperf
