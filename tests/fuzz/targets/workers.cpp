// Any bytes as what the daemon and its workers send each other: replies of a worker that was taken
// over by what it reads, and requests. The first byte chooses.

#include <algorithm>
#include <cstring>

#include "daemon/attach/attach_block.h"
#include "daemon/attach/attach_message.h"
#include "daemon/resolve/dwarf_message.h"
#include "daemon/unwind/memory_message.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {
namespace {

std::string check_attach(std::string_view bytes) {
  const auto reply = decode_attach_reply(bytes);
  if (!reply) return "";
  (void)get_refusal_hint(reply->refusal);
  const size_t length = std::strlen(reply->text) + std::strlen(reply->comm);
  return length > sizeof(AttachReply) ? "texts without an end" : "";
}

// The block that a process shows, as the attach worker copies it.
std::string check_shown_block(std::string_view bytes) {
  gpuperf_attach_block block{};
  std::memcpy(&block, bytes.data(), std::min(bytes.size(), sizeof block));
  AttachTarget target{.pid = 71, .inner_pid = 5};
  target.maps = parse_maps("1000-5000 r-xp 00001000 08:01 99 /usr/lib/libgpuperf_injector.so\n");
  if (!check_block(target, block)) return "";
  const bool is_inside = block.entry == 0 || target.maps[0].contains(block.entry);
  return is_inside ? "" : "an entry outside the library";
}

std::string check_memory(std::string_view bytes) {
  const MemoryRequest asked{.pid = 71, .ranges = {{1, 3}, {2, 0}, {3, 4'096}}};
  const auto reply = decode_memory_reply(asked, bytes);
  if (reply && reply->size() != asked.ranges.size()) return "a reply to another request";
  const auto request = decode_reader_request(bytes);
  if (!request) return "";
  const std::string again = std::visit([](const auto& read) { return encode(read); }, *request);
  return again == bytes ? "" : "a request that is not written as read";
}

std::string check_dwarf(std::string_view bytes) {
  const auto frames = decode_reply(bytes);
  if (frames && frames->size() > kMaxRequestAddresses) return "more answers than addresses";
  const auto request = decode_request(bytes);
  return request && decode_request(encode(*request)) != *request ? "a request read otherwise" : "";
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  if (bytes.empty()) return "";
  const char choice = bytes.front();
  bytes.remove_prefix(1);
  if (choice == 'a') return check_attach(bytes);
  if (choice == 'b') return check_shown_block(bytes);
  return choice == 'm' ? check_memory(bytes) : check_dwarf(bytes);
}

std::vector<std::string> make_seeds() {
  const AttachReply attach{.state = AttachState::kAttached};
  gpuperf_attach_block block{};
  block.magic = GPUPERF_ATTACH_MAGIC;
  block.version = GPUPERF_ATTACH_VERSION;
  block.state = GPUPERF_ATTACH_ATTACHED;
  block.entry = 0x1100;
  ReplyWriter dwarf;
  const SourceFrame frames[] = {{.symbol = "f", .file = "f.c", .line = 3, .begin_vaddr = 0x1000}};
  (void)dwarf.add(frames);
  return {"a" + std::string(reinterpret_cast<const char*>(&attach), sizeof attach),
          "b" + std::string(reinterpret_cast<const char*>(&block), sizeof block),
          "m" + encode(MemoryRequest{.pid = 71, .ranges = {{0x1000, 8}}}),
          "m" + encode(MapsRequest{.pid = 71, .max_bytes = 4'096}),
          "m" + encode(MemoryReply{"abc", std::nullopt, std::nullopt}),
          "d" + dwarf.bytes(),
          "d" + encode(DwarfRequest{.file_id = 1, .vaddrs = {0x1000, 0x1004}})};
}

}  // namespace gpuperf::fuzz
