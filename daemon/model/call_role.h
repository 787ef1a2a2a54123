#pragma once

#include <string_view>

namespace gpuperf {

// What a function is for, told by its name, in the categories "cuda" and "nccl" only.
enum class CallRole { kOther, kSync, kCopy, kAllocate, kFree, kLaunch, kLoad, kCollective };

CallRole find_call_role(std::string_view category, std::string_view function);

}  // namespace gpuperf
