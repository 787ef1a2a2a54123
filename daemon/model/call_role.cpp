#include "daemon/model/call_role.h"

#include <algorithm>
#include <initializer_list>

namespace gpuperf {
namespace {

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [text](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

}  // namespace

CallRole find_call_role(std::string_view category, std::string_view function) {
  if (category == "nccl") return CallRole::kCollective;
  if (category != "cuda") return CallRole::kOther;
  if (contains_any(function, {"Synchronize", "StreamWaitEvent", "EventQuery"})) {
    return CallRole::kSync;
  }
  if (contains_any(function, {"Memcpy", "Memset"})) return CallRole::kCopy;
  if (contains_any(function, {"Malloc", "MemAlloc", "MemCreate", "HostRegister", "HostAlloc"})) {
    return CallRole::kAllocate;
  }
  if (contains_any(function, {"Free", "MemRelease", "HostUnregister"})) return CallRole::kFree;
  if (contains_any(function,
                   {"Module", "Library", "CtxCreate", "PrimaryCtx", "SetDevice", "Init"})) {
    return CallRole::kLoad;
  }
  if (contains_any(function, {"Launch"})) return CallRole::kLaunch;
  return CallRole::kOther;
}

}  // namespace gpuperf
