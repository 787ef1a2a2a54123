#include "daemon/unwind/memory_message.h"

#include <cstring>

namespace gpuperf {
namespace {

enum Kind : uint32_t { kMemory, kMaps };

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T take(std::string_view& bytes) {
  T value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::string begin_request(uint32_t pid, Kind kind) {
  std::string bytes;
  put<uint32_t>(bytes, pid);
  put<uint32_t>(bytes, kind);
  return bytes;
}

std::optional<ReaderRequest> decode_ranges(uint32_t pid, std::string_view bytes) {
  constexpr size_t kRangeBytes = 2 * sizeof(uint64_t);
  MemoryRequest request{.pid = pid};
  if (bytes.size() % kRangeBytes != 0 || bytes.size() / kRangeBytes > kMaxMemoryRanges) {
    return std::nullopt;
  }
  size_t rest_bytes = kMaxMemoryBytes;
  while (!bytes.empty()) {
    MemoryRange& range = request.ranges.emplace_back();
    range.address = take<uint64_t>(bytes);
    range.size_bytes = take<uint64_t>(bytes);
    if (range.size_bytes > rest_bytes) return std::nullopt;
    rest_bytes -= range.size_bytes;
  }
  return request;
}

}  // namespace

std::string encode(const MemoryRequest& request) {
  std::string bytes = begin_request(request.pid, kMemory);
  for (const MemoryRange& range : request.ranges) {
    put<uint64_t>(bytes, range.address);
    put<uint64_t>(bytes, range.size_bytes);
  }
  return bytes;
}

std::string encode(const MapsRequest& request) {
  std::string bytes = begin_request(request.pid, kMaps);
  put<uint64_t>(bytes, request.max_bytes);
  return bytes;
}

std::optional<ReaderRequest> decode_reader_request(std::string_view bytes) {
  if (bytes.size() < 2 * sizeof(uint32_t)) return std::nullopt;
  const auto pid = take<uint32_t>(bytes);
  const auto kind = take<uint32_t>(bytes);
  if (kind == kMemory) return decode_ranges(pid, bytes);
  if (kind != kMaps || bytes.size() != sizeof(uint64_t)) return std::nullopt;
  return MapsRequest{.pid = pid, .max_bytes = take<uint64_t>(bytes)};
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
