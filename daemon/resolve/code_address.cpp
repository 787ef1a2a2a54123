#include "daemon/resolve/code_address.h"

#include <iterator>

namespace gpuperf {

std::vector<CodeAddress> to_return_addresses(const std::vector<uint64_t>& addresses) {
  std::vector<CodeAddress> codes;
  codes.reserve(addresses.size());
  for (const uint64_t address : addresses) codes.push_back({.address = address});
  return codes;
}

std::vector<StackFrame> join_groups(std::vector<FrameGroup> groups) {
  std::vector<StackFrame> frames;
  frames.reserve(groups.size());
  for (FrameGroup& group : groups) {
    frames.insert(frames.end(), std::make_move_iterator(group.begin()),
                  std::make_move_iterator(group.end()));
  }
  return frames;
}

std::vector<FrameGroup> make_unnamed_groups(const std::vector<CodeAddress>& addresses) {
  std::vector<FrameGroup> groups;
  groups.reserve(addresses.size());
  for (const CodeAddress& code : addresses) groups.push_back({{.address = code.address}});
  return groups;
}

}  // namespace gpuperf
