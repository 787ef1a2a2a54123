#include "daemon/rpc/stored_stacks.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace gpuperf {
namespace {

using Frames = google::protobuf::RepeatedPtrField<v1::StackFrame>;

// Where a call has a stack that may be kept apart.
struct StackPlace {
  uint64_t id = 0;
  Frames* frames = nullptr;
};

// 0 = none that the store takes.
uint64_t parse_id(const std::string& text) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  uint64_t id = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, id, 16);
  return error == std::errc() && rest == end && id <= kMax ? id : 0;
}

void add_waker(v1::Waker& waker, std::vector<StackPlace>& places) {
  places.push_back({parse_id(waker.stack_id()), waker.mutable_stack()});
}

std::vector<StackPlace> list_places(v1::SlowCall& call) {
  std::vector<StackPlace> places = {{parse_id(call.user_stack_id()), call.mutable_user_stack()}};
  if (call.has_time_split()) {
    v1::TimeSplit& split = *call.mutable_time_split();
    if (split.has_waker()) add_waker(*split.mutable_waker(), places);
    for (v1::Wait& wait : *split.mutable_waits()) {
      places.push_back({parse_id(wait.kernel_stack_id()), wait.mutable_kernel_stack()});
      if (wait.has_waker()) add_waker(*wait.mutable_waker(), places);
    }
  }
  std::erase_if(places, [](const StackPlace& place) { return place.id == 0; });
  return places;
}

}  // namespace

std::vector<StoredStack> take_stacks(v1::SlowCall& call) {
  std::map<uint64_t, v1::StoredStack> taken;
  for (const StackPlace& place : list_places(call)) {
    if (place.frames->empty()) continue;
    const auto [stack, is_new] = taken.try_emplace(place.id);
    if (is_new) stack->second.mutable_frames()->Swap(place.frames);
    place.frames->Clear();
  }
  std::vector<StoredStack> stacks;
  stacks.reserve(taken.size());
  for (const auto& [id, stack] : taken) {
    stacks.push_back({.id = id, .body = stack.SerializeAsString()});
  }
  return stacks;
}

void put_back_stacks(std::span<const StoredStack> stacks, v1::SlowCall& call) {
  std::map<uint64_t, v1::StoredStack> parsed;
  for (const StoredStack& stack : stacks) {
    v1::StoredStack& message = parsed[stack.id];
    if (!message.ParseFromString(stack.body))
      message.Clear();  // of what was parsed up to the fault
  }
  for (const StackPlace& place : list_places(call)) {
    const auto stack = parsed.find(place.id);
    if (stack != parsed.end() && place.frames->empty()) {
      place.frames->CopyFrom(stack->second.frames());
    }
  }
}

}  // namespace gpuperf
