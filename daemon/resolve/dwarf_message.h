#pragma once

// What the daemon and its DWARF worker send each other: both are the same program on the same
// machine, so numbers are as the machine has them. The worker may have been taken over by a file
// made for that, so its answers are read with the care due to any input.
//
//   request: u64 file id | u32 has alternate file | u32 count | count x u64 vaddr
//            and with its first byte the file's descriptor, and the alternate's if there is one
//   reply:   u32 count | count x (u32 frames | frames x frame)
//   frame:   u64 begin_vaddr | u32 line | text symbol | text file;  text: u32 bytes | bytes

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/resolve/dwarf_reader.h"

namespace gpuperf {

inline constexpr size_t kMaxRequestAddresses = 256;
inline constexpr size_t kMaxDwarfRequestBytes = (2 + kMaxRequestAddresses) * sizeof(uint64_t);
// One address has at most kMaxDepth frames of two texts each: room for a whole one.
inline constexpr size_t kMaxReplyBytes =
    2 * DwarfReader::kMaxDepth * (DwarfReader::kMaxTextBytes + 16);

struct DwarfRequest {
  uint64_t file_id = 0;
  bool has_alternate = false;
  std::vector<uint64_t> vaddrs;  // at most kMaxRequestAddresses
  bool operator==(const DwarfRequest&) const = default;
};

std::string encode(const DwarfRequest& request);
std::optional<DwarfRequest> decode_request(std::string_view bytes);

// A reply under construction.
class ReplyWriter {
 public:
  // False when there is no room for it: the reply ends before.
  bool add(std::span<const SourceFrame> frames);
  const std::string& bytes();

 private:
  std::string bytes_ = std::string(sizeof(uint32_t), '\0');
  uint32_t count_ = 0;
};

// Frames of the first addresses of the request; nullopt when it is malformed.
std::optional<std::vector<std::vector<SourceFrame>>> decode_reply(std::string_view bytes);

}  // namespace gpuperf
