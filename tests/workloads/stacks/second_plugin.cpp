// As the first one, with other functions, frames and sizes at the same places.

#include "walk.h"

using workload::Frame;
using workload::Walk;

extern "C" {

[[gnu::noipa]] uint64_t second_plugin_leaf(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t numbers[150] = {walk->random};
  asm volatile("" : : "r"(numbers) : "memory");
  return walk->back(walk) + numbers[walk->sample % 150];
}

[[gnu::noipa]] uint64_t second_plugin_registers(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t a = walk->random, b = a * 3, c = b ^ 5, d = c + a, e = d * b;
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
  const uint64_t value = second_plugin_leaf(walk);
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
  return value + (a ^ b ^ c ^ d ^ e);
}

[[gnu::visibility("default")]] uint64_t plugin_entry(Walk* walk) {
  const Frame frame(walk, __func__);
  alignas(64) char memory[64] = {1};
  asm volatile("" : : "r"(memory) : "memory");
  return second_plugin_registers(walk) + static_cast<uint64_t>(memory[0]);
}

}  // extern "C"
