#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// The stacks of a capture as the stackFrames of Chrome's format: a tree in which every frame names
// its caller, so that stacks share what they have in common.
class ChromeStacks {
 public:
  explicit ChromeStacks(const Capture& capture);

  // The innermost frame's id, for "sf"; 0 = the stack has none.
  uint32_t get_id(uint32_t stack) const { return stack < ids_.size() ? ids_[stack] : 0; }
  // `{"1":{"name":"main","category":"app"},"2":{"name":"step","category":"app","parent":"1"}}`
  std::string take_json() { return std::move(json_); }

 private:
  std::vector<uint32_t> ids_;
  std::string json_ = "{";
};

}  // namespace gpuperf
