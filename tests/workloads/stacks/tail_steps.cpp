// Functions that end in a jump, and so are on no stack: what they jump to returns to their caller.
// They do not write on the shadow stack. Compiled with sibling calls, which no other file is.

#include "walk.h"

namespace workload {

extern "C" {

// The function that calls stack_target, as far as any stack can tell, is the caller of this one.
[[gnu::noipa]] uint64_t jump_to_target(Walk* walk) { return stack_target(walk->sample); }

[[gnu::noipa]] uint64_t call_a_jump(Walk* walk) {
  const Frame frame(walk, __func__);
  if (walk->steps_left > 0) return take_step(walk) + 1;
  print_own_stack(walk);
  return jump_to_target(walk) + 1;
}

[[gnu::noipa]] uint64_t jump_on(Walk* walk) {
  if (walk->steps_left == 0) return call_a_jump(walk);
  walk->steps_left -= 1;
  return walk->steps[next_random(walk) % walk->steps.size()](walk);
}

[[gnu::noipa]] void turn_random(Walk* walk) { (void)next_random(walk); }

// Has saved registers before it jumps.
[[gnu::noipa]] uint64_t call_and_jump(Walk* walk) {
  turn_random(walk);
  turn_random(walk);
  return jump_on(walk);
}

}  // extern "C"

std::span<const Step> tail_call_steps() {
  static const std::vector<Step> steps = [] {
    std::vector<Step> all(ordinary_steps().begin(), ordinary_steps().end());
    for (size_t i = 0; i < ordinary_steps().size() / 2; ++i) {  // as often as the others
      all.insert(all.end(), {jump_on, call_and_jump, call_a_jump});
    }
    return all;
  }();
  return steps;
}

}  // namespace workload
