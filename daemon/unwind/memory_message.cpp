#include "daemon/unwind/memory_message.h"

#include <cstring>

namespace gpuperf {
namespace {

void put(std::string& bytes, uint64_t value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

uint64_t take(std::string_view& bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

}  // namespace

std::string encode(const MemoryRequest& request) {
  std::string bytes;
  put(bytes, request.pid);
  for (const MemoryRange& range : request.ranges) {
    put(bytes, range.address);
    put(bytes, range.size_bytes);
  }
  return bytes;
}

std::optional<MemoryRequest> decode_memory_request(std::string_view bytes) {
  constexpr size_t kRangeBytes = 2 * sizeof(uint64_t);
  if (bytes.size() < sizeof(uint64_t)) return std::nullopt;
  MemoryRequest request{.pid = static_cast<uint32_t>(take(bytes))};
  if (bytes.size() % kRangeBytes != 0 || bytes.size() / kRangeBytes > kMaxMemoryRanges) {
    return std::nullopt;
  }
  size_t rest_bytes = kMaxMemoryBytes;
  while (!bytes.empty()) {
    MemoryRange& range = request.ranges.emplace_back();
    range.address = take(bytes);
    range.size_bytes = take(bytes);
    if (range.size_bytes > rest_bytes) return std::nullopt;
    rest_bytes -= range.size_bytes;
  }
  return request;
}

std::string encode(const MemoryReply& reply) {
  std::string bytes;
  for (const auto& range : reply) bytes += range ? '\1' : '\0';
  for (const auto& range : reply) {
    if (range) bytes += *range;
  }
  return bytes;
}

std::optional<MemoryReply> decode_memory_reply(const MemoryRequest& request,
                                               std::string_view bytes) {
  const size_t count = request.ranges.size();
  if (bytes.size() < count) return std::nullopt;
  const std::string_view flags = bytes.substr(0, count);
  bytes.remove_prefix(count);
  MemoryReply reply(count);
  for (size_t i = 0; i < count; ++i) {
    if (flags[i] == '\0') continue;
    if (bytes.size() < request.ranges[i].size_bytes) return std::nullopt;
    reply[i] = bytes.substr(0, request.ranges[i].size_bytes);
    bytes.remove_prefix(request.ranges[i].size_bytes);
  }
  if (!bytes.empty()) return std::nullopt;
  return reply;
}

}  // namespace gpuperf
