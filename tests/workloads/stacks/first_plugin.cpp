// A plugin: its functions stand on the stack between those of the program. The second one has other
// frames at the same places.

#include "walk.h"

using workload::Frame;
using workload::Walk;

extern "C" {

[[gnu::noipa]] uint64_t first_plugin_inner(Walk* walk) {
  const Frame frame(walk, __func__);
  return walk->back(walk) + 1;
}

[[gnu::noipa]] uint64_t first_plugin_outer(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t numbers[12] = {walk->random};
  asm volatile("" : : "r"(numbers) : "memory");
  return first_plugin_inner(walk) + numbers[walk->sample % 12];
}

[[gnu::visibility("default")]] uint64_t plugin_entry(Walk* walk) {
  const Frame frame(walk, __func__);
  return walk->random % 2 == 0 ? first_plugin_outer(walk) + 1 : first_plugin_inner(walk) + 2;
}

}  // extern "C"
