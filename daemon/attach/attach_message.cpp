#include "daemon/attach/attach_message.h"

#include <cstring>
#include <iterator>

namespace gpuperf {

std::optional<AttachReply> decode_attach_reply(std::string_view bytes) {
  AttachReply reply;
  if (bytes.size() != sizeof reply) return std::nullopt;
  std::memcpy(&reply, bytes.data(), sizeof reply);
  if (static_cast<size_t>(reply.state) >= kAttachStates) return std::nullopt;
  if (static_cast<size_t>(reply.refusal) >= kAttachRefusals) return std::nullopt;
  reply.comm[std::size(reply.comm) - 1] = '\0';
  reply.text[std::size(reply.text) - 1] = '\0';
  return reply;
}

}  // namespace gpuperf
