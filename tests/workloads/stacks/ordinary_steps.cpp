// The functions of a walk: one for each thing that a compiler does to a frame.

#include <alloca.h>
#include <pthread.h>

#include <cstdlib>
#include <memory>

#include "walk.h"

namespace workload {
namespace {

// Makes the compiler keep `value` in memory, and believe that it changes there.
template <typename T>
void keep(T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// The walk of the thread, for callbacks without an argument.
thread_local Walk* t_walk = nullptr;
// Whether the walk has already gone on from the call into the C library.
thread_local bool t_went_on = false;

}  // namespace

extern "C" {

[[gnu::noipa]] uint64_t small_frame(Walk* walk) {
  const Frame frame(walk, __func__);
  return take_step(walk) + 1;
}

// Holds values in every register that survives a call, the frame pointer's too.
[[gnu::noipa]] uint64_t busy_registers(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t a = next_random(walk), b = a * 3, c = b ^ 5, d = c + a, e = d * b, f = e ^ c;
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
  const uint64_t value = take_step(walk);
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
  return value + (a ^ b ^ c ^ d ^ e ^ f);
}

// A frame whose size is known at run time only.
[[gnu::noipa]] uint64_t variable_frame(Walk* walk) {
  const Frame frame(walk, __func__);
  const size_t bytes = 16 + next_random(walk) % 3000;
  char* const memory = static_cast<char*>(alloca(bytes));
  memory[0] = memory[bytes - 1] = 1;
  keep(*memory);
  return take_step(walk) + static_cast<uint64_t>(memory[0]);
}

// A frame at a multiple of 64 bytes: the distance to the caller's is known at run time only.
[[gnu::noipa]] uint64_t aligned_frame(Walk* walk) {
  const Frame frame(walk, __func__);
  alignas(64) char memory[128] = {1};
  keep(memory);
  return take_step(walk) + static_cast<uint64_t>(memory[0]);
}

[[gnu::noipa]] uint64_t aligned_variable_frame(Walk* walk) {
  const Frame frame(walk, __func__);
  alignas(128) char aligned[128] = {1};
  keep(aligned);
  const size_t bytes = 16 + next_random(walk) % 1000;
  char* const memory = static_cast<char*>(alloca(bytes));
  memory[0] = memory[bytes - 1] = 1;
  keep(*memory);
  return take_step(walk) + static_cast<uint64_t>(memory[0] + aligned[0]);
}

[[gnu::noipa]] uint64_t ten_arguments(Walk* walk, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                      uint64_t e, uint64_t f, uint64_t g, uint64_t h, uint64_t i) {
  const Frame frame(walk, __func__);
  return take_step(walk) + (a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i);
}

// Pushes arguments on the stack: its frame is larger at the call than around it.
[[gnu::noipa]] uint64_t push_arguments(Walk* walk) {
  const Frame frame(walk, __func__);
  const uint64_t a = next_random(walk);
  return ten_arguments(walk, a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7, a + 8) + a;
}

// Larger than a page, and than what is copied of a stack at most places.
[[gnu::noipa]] uint64_t big_frame(Walk* walk) {
  const Frame frame(walk, __func__);
  char memory[40 * 1024];
  keep(memory);
  return take_step(walk) + static_cast<uint64_t>(memory[walk->sample % sizeof memory] & 1);
}

[[gnu::noipa]] uint64_t recursive(Walk* walk, uint64_t rounds) {
  const Frame frame(walk, __func__);
  return rounds == 0 ? take_step(walk) + 1 : recursive(walk, rounds - 1) + 2;
}

[[gnu::noipa]] uint64_t begin_recursion(Walk* walk) {
  const Frame frame(walk, __func__);
  return recursive(walk, next_random(walk) % 5) + 1;
}

// Exceptions. The walk goes on where one is handled, in code that the compiler puts apart from the
// function's own.

[[gnu::noipa]] void throw_number(uint64_t value) { throw value; }

[[gnu::noipa]] uint64_t catching(Walk* walk) {
  const Frame frame(walk, __func__);
  try {
    throw_number(1);
  } catch (uint64_t value) {
    return take_step(walk) + value;
  }
  return 0;
}

}  // extern "C"

// A frame's cleanup on the exception's way out.
struct WalksOnAtExit {
  Walk* walk;
  [[gnu::noipa]] ~WalksOnAtExit() {
    const Frame frame(walk, "workload::WalksOnAtExit::~WalksOnAtExit");
    walk->random += take_step(walk) & 1;
  }
};

extern "C" {

[[gnu::noipa]] void clean_up(Walk* walk) {
  const Frame frame(walk, __func__);
  const WalksOnAtExit cleanup{walk};
  throw_number(2);
}

[[gnu::noipa]] uint64_t catch_cleaned_up(Walk* walk) {
  const Frame frame(walk, __func__);
  try {
    clean_up(walk);
  } catch (uint64_t value) {
    return value;
  }
  return 0;
}

// Never returns: where its caller's code ends with the call, the return address is in what follows.
[[gnu::noipa, noreturn]] void leave_by_throwing(Walk* walk) {
  {
    const Frame frame(walk, __func__);
    walk->random += take_step(walk) & 1;
  }
  throw uint64_t{3};
}

[[gnu::noipa]] void end_in_call(Walk* walk) {
  walk->names[walk->depth++] = __func__;  // without a Frame, whose end would come after the call
  leave_by_throwing(walk);
}

[[gnu::noipa]] uint64_t catch_left(Walk* walk) {
  const Frame frame(walk, __func__);
  const size_t depth = walk->depth;
  try {
    end_in_call(walk);
  } catch (uint64_t value) {
    walk->depth = depth;
    return value;
  }
  return 0;
}

// The C library in the middle.

[[gnu::noipa]] int compare_and_step(const void* a, const void* b) {
  if (!t_went_on) {
    t_went_on = true;
    Walk* const walk = t_walk;
    const Frame frame(walk, __func__);
    walk->random += take_step(walk) & 1;
  }
  const auto left = *static_cast<const uint64_t*>(a), right = *static_cast<const uint64_t*>(b);
  return left < right ? -1 : left > right;
}

[[gnu::noipa]] uint64_t sort_in_libc(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t numbers[16];
  for (uint64_t& number : numbers) number = next_random(walk);
  t_walk = walk;
  t_went_on = false;
  qsort(numbers, std::size(numbers), sizeof numbers[0], compare_and_step);
  return numbers[0];
}

[[gnu::noipa]] uint64_t search_in_libc(Walk* walk) {
  const Frame frame(walk, __func__);
  const uint64_t numbers[] = {1, 2, 3, 4, 5, 6, 7}, key = 5;
  t_walk = walk;
  t_went_on = false;
  // The header has a body for it, which would be inlined.
  void* (*volatile search)(const void*, const void*, size_t, size_t, __compar_fn_t) = bsearch;
  return search(&key, numbers, std::size(numbers), sizeof key, compare_and_step) != nullptr;
}

[[gnu::noipa]] void step_once() {
  Walk* const walk = t_walk;
  const Frame frame(walk, __func__);
  walk->random += take_step(walk) & 1;
}

[[gnu::noipa]] uint64_t initialise_once(Walk* walk) {
  const Frame frame(walk, __func__);
  const auto control = std::make_unique<pthread_once_t>(PTHREAD_ONCE_INIT);
  t_walk = walk;
  pthread_once(control.get(), step_once);
  return 1;
}

}  // extern "C"

// Names that only C++ has.

class Node {
 public:
  virtual ~Node() = default;
  [[gnu::noipa]] virtual uint64_t visit(Walk* walk) const {
    const Frame frame(walk, "workload::Node::visit");
    return take_step(walk) + 1;
  }
};

class Leaf : public Node {
 public:
  [[gnu::noipa]] uint64_t visit(Walk* walk) const override {
    const Frame frame(walk, "workload::Leaf::visit");
    return Node::visit(walk) + 1;
  }
};

template <typename T>
[[gnu::noipa]] T visit_as(Walk* walk) {
  const Frame frame(walk, sizeof(T) == 4 ? "workload::visit_as<unsigned int>"
                                         : "workload::visit_as<unsigned long>");
  const Leaf leaf;
  const Node* node = &leaf;
  asm volatile("" : "+r"(node));
  return static_cast<T>(node->visit(walk) + 1);
}

extern "C" [[gnu::noipa]] uint64_t visit_nodes(Walk* walk) {
  const Frame frame(walk, __func__);
  return walk->random % 2 == 0 ? visit_as<uint32_t>(walk) + 1 : visit_as<uint64_t>(walk) + 1;
}

std::span<const Step> ordinary_steps() {
  static constexpr Step kSteps[] = {
      small_frame,    busy_registers, variable_frame,  aligned_frame,   aligned_variable_frame,
      push_arguments, big_frame,      begin_recursion, catching,        catch_cleaned_up,
      catch_left,     sort_in_libc,   search_in_libc,  initialise_once, visit_nodes};
  return kSteps;
}

}  // namespace workload
