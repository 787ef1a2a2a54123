#include "daemon/resolve/dwarf_message.h"

#include <cstring>

namespace gpuperf {
namespace {

template <typename T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, static_cast<uint32_t>(text.size()));
  bytes += text;
}

template <typename T>
bool take(std::string_view& bytes, T& value) {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return true;
}

bool take_text(std::string_view& bytes, std::string& text) {
  uint32_t length = 0;
  if (!take(bytes, length)) return false;
  if (length > DwarfReader::kMaxTextBytes || length > bytes.size()) return false;
  text = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return true;
}

bool take_frame(std::string_view& bytes, SourceFrame& frame) {
  return take(bytes, frame.begin_vaddr) && take(bytes, frame.line) &&
         take_text(bytes, frame.symbol) && take_text(bytes, frame.file);
}

}  // namespace

std::string encode(const DwarfRequest& request) {
  std::string bytes;
  put(bytes, request.file_id);
  put(bytes, uint32_t{request.has_alternate});
  put(bytes, static_cast<uint32_t>(request.vaddrs.size()));
  for (const uint64_t vaddr : request.vaddrs) put(bytes, vaddr);
  return bytes;
}

std::optional<DwarfRequest> decode_request(std::string_view bytes) {
  DwarfRequest request;
  uint32_t has_alternate = 0;
  uint32_t count = 0;
  if (!take(bytes, request.file_id) || !take(bytes, has_alternate) || !take(bytes, count)) {
    return std::nullopt;
  }
  request.has_alternate = has_alternate != 0;
  if (count > kMaxRequestAddresses || bytes.size() != count * sizeof(uint64_t)) return std::nullopt;
  request.vaddrs.resize(count);
  for (uint64_t& vaddr : request.vaddrs) (void)take(bytes, vaddr);  // the size has been checked
  return request;
}

bool ReplyWriter::add(std::span<const SourceFrame> frames) {
  const size_t before = bytes_.size();
  put(bytes_, static_cast<uint32_t>(frames.size()));
  for (const SourceFrame& frame : frames) {
    put(bytes_, frame.begin_vaddr);
    put(bytes_, frame.line);
    put_text(bytes_, frame.symbol);
    put_text(bytes_, frame.file);
  }
  if (bytes_.size() > kMaxReplyBytes) {
    bytes_.resize(before);
    return false;
  }
  ++count_;
  return true;
}

const std::string& ReplyWriter::bytes() {
  std::memcpy(bytes_.data(), &count_, sizeof count_);
  return bytes_;
}

std::optional<std::vector<std::vector<SourceFrame>>> decode_reply(std::string_view bytes) {
  uint32_t addresses = 0;
  if (!take(bytes, addresses) || addresses > kMaxRequestAddresses) return std::nullopt;
  std::vector<std::vector<SourceFrame>> frames(addresses);
  for (std::vector<SourceFrame>& of_address : frames) {
    uint32_t count = 0;
    if (!take(bytes, count) || count > DwarfReader::kMaxDepth) return std::nullopt;
    of_address.resize(count);
    for (SourceFrame& frame : of_address) {
      if (!take_frame(bytes, frame)) return std::nullopt;
    }
  }
  if (!bytes.empty()) return std::nullopt;
  return frames;
}

}  // namespace gpuperf
