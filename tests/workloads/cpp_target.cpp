#include "cpp_target.h"

#include <stdexcept>
#include <string>

namespace demo {
namespace {

// Has a destructor that the unwinder must run, as most frames of a real library have.
struct Guard {
  explicit Guard(uint64_t& depth) : depth_(depth) { ++depth_; }
  ~Guard() { --depth_; }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  uint64_t& depth_;
};

thread_local uint64_t t_depth = 0;

[[gnu::cold, gnu::noinline]] void fail(uint64_t index) {
  throw std::out_of_range("index " + std::to_string(index) + " is not accepted");
}

}  // namespace

uint64_t leaf(uint64_t index) {
  asm volatile("" : "+r"(index));
  return index + 1;
}

uint64_t call(Callback callback, void* argument) {
  const Guard guard(t_depth);
  return callback(argument) + 1;
}

uint64_t outer(Callback callback, void* argument) {
  const Guard guard(t_depth);
  return call(callback, argument) + 1;
}

uint64_t tail(Callback callback, void* argument) { return call(callback, argument); }

uint64_t rescue(Callback callback, void* argument) {
  try {
    return call(callback, argument) + 1;
  } catch (const std::exception&) {
    return 0;
  }
}

uint64_t checked(uint64_t index) {
  const Guard guard(t_depth);
  if (index % 10 == 3) fail(index);
  return index + t_depth;
}

uint64_t choose(uint64_t index) {
  switch (index % 8) {
    case 0:
      return 0;
    case 1:
      return index;
    case 2:
      return leaf(index) + index - 1;
    case 3:
      return leaf(index) + index + index - 1;
    case 4:
      asm volatile("");
      return index << 2;
    case 5:
      asm volatile("nop");
      return (index << 2) + index;
    case 6:
      asm volatile("nop; nop");
      return (index << 2) + (index << 1);
    default:
      return (index << 3) - index;
  }
}

}  // namespace demo
