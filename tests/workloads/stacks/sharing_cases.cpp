// Samples of one thread that share frames with the sample before: loops at every level of a
// recursion, so that frames further out stay while those inside of them change, and others return
// and are called again at the very same place.

#include <alloca.h>
#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "walk.h"

namespace workload {
namespace {

constexpr size_t kMaxDepth = 40;  // of our own frames
constexpr size_t kMaxJumps = 64;
constexpr size_t kFiberStackBytes = 256 * 1024;
constexpr size_t kFibers = 4;

// Where a longjmp may go to.
struct JumpTarget {
  jmp_buf buffer;
  size_t depth = 0;  // of the shadow stack
};

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> memory = std::make_unique<char[]>(kFiberStackBytes);
  Walk walk;
  bool is_finished = false;
};

// Of the one thread of these cases.
Request* g_request = nullptr;
bool g_is_done = false;
JumpTarget g_jumps[kMaxJumps];
size_t g_jump_count = 0;
std::vector<Fiber> g_fibers;  // none: the case has no other stacks
ucontext_t g_main_context;
uint64_t g_random = 88172645463325252u;  // over samples: that of a walk begins anew with each

uint64_t choose(uint64_t choices) {
  g_random ^= g_random << 13;
  g_random ^= g_random >> 7;
  g_random ^= g_random << 17;
  return (g_random >> 11) % choices;
}

void swap_to_other_fiber(Walk* walk) {
  for (Fiber& fiber : g_fibers) {
    if (&fiber.walk != walk) continue;
    Fiber& other = g_fibers[choose(g_fibers.size())];
    if (&other != &fiber && !other.is_finished) (void)swapcontext(&fiber.context, &other.context);
    return;
  }
}

[[gnu::always_inline]] inline uint64_t go_further(Walk* walk);

// A sample from the function that this is inlined into.
[[gnu::always_inline]] inline uint64_t take_next_sample(Walk* walk) {
  if (!begin_walk(walk, *g_request, 0)) {
    g_is_done = true;
    return 0;
  }
  return take_sample(walk);
}

// What every function below does: some rounds of samples of its own and of calls.
[[gnu::always_inline]] inline uint64_t take_rounds(Walk* walk) {
  uint64_t sum = 0;
  for (uint64_t rounds = 1 + choose(4); rounds > 0 && !g_is_done; --rounds) {
    if (walk->depth >= kMaxDepth || choose(3) == 0) {
      sum += take_next_sample(walk);
    } else {
      sum += go_further(walk);
    }
  }
  return sum;
}

}  // namespace

extern "C" {

// Two that differ in where they are only: their frames, and all inside, stand at the same places.
[[gnu::noipa]] uint64_t first_twin(Walk* walk) {
  const Frame frame(walk, __func__);
  return take_rounds(walk) + 1;
}

[[gnu::noipa]] uint64_t second_twin(Walk* walk) {
  const Frame frame(walk, __func__);
  return take_rounds(walk) + 1;
}

// Calls by which one of the twins is called from two places of one function.
[[gnu::noipa]] uint64_t call_from_two_places(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t sum = first_twin(walk);
  asm volatile("" : "+r"(sum));
  return sum + first_twin(walk);
}

[[gnu::noipa]] uint64_t aligned_rounds(Walk* walk) {
  const Frame frame(walk, __func__);
  alignas(64) char memory[128] = {1};
  asm volatile("" : : "r"(memory) : "memory");
  return take_rounds(walk) + static_cast<uint64_t>(memory[0]);
}

[[gnu::noipa]] uint64_t variable_rounds(Walk* walk) {
  const Frame frame(walk, __func__);
  auto* const memory = static_cast<char*>(alloca(16 + 16 * choose(4)));
  memory[0] = 1;
  asm volatile("" : : "r"(memory) : "memory");
  return take_rounds(walk) + static_cast<uint64_t>(memory[0]);
}

// Holds a number that changes from call to call in the frame pointer's register, among others.
[[gnu::noipa]] uint64_t busy_rounds(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t a = choose(100), b = a * 3, c = b ^ 5, d = c + a, e = d * b, f = e ^ c;
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
  const uint64_t sum = take_rounds(walk);
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
  return sum + (a ^ b ^ c ^ d ^ e ^ f);
}

// Samples after those inside have left by longjmp.
[[gnu::noipa]] uint64_t jump_target(Walk* walk) {
  const Frame frame(walk, __func__);
  if (g_jump_count == kMaxJumps || !g_fibers.empty()) return take_rounds(walk);
  const size_t own = g_jump_count++;
  g_jumps[own].depth = walk->depth;
  uint64_t sum = 0;
  if (setjmp(g_jumps[own].buffer) == 0) {
    sum = first_twin(walk);
  } else {
    walk->depth = g_jumps[own].depth;
  }
  g_jump_count = own;
  return sum + take_rounds(walk);
}

[[gnu::noipa]] uint64_t jump_back(Walk* walk) {
  const Frame frame(walk, __func__);
  const uint64_t sum = take_rounds(walk);
  if (g_jump_count > 0 && choose(2) == 0) {
    g_jump_count = choose(g_jump_count);
    longjmp(g_jumps[g_jump_count].buffer, 1);
  }
  return sum;
}

[[gnu::noipa]] uint64_t swap_stacks(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t sum = take_rounds(walk);
  swap_to_other_fiber(walk);
  if (!g_is_done) sum += take_next_sample(walk);
  return sum;
}

}  // extern "C"

namespace {

// Inlined: the frame is its caller's.
[[gnu::always_inline]] inline uint64_t go_further(Walk* walk) {
  static constexpr Step kSteps[] = {first_twin,     second_twin,     call_from_two_places,
                                    aligned_rounds, variable_rounds, busy_rounds,
                                    jump_target,    jump_back,       swap_stacks};
  return kSteps[choose(std::size(kSteps))](walk);
}

}  // namespace

extern "C" {

[[gnu::noipa]] void run_sharing(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  g_request = &request;
  while (!g_is_done) (void)first_twin(walk);
}

[[gnu::noipa]] void fiber_main(unsigned index) {
  Fiber& fiber = g_fibers[index];
  {
    const Frame frame(&fiber.walk, __func__);
    note_start(&fiber.walk);
    while (!g_is_done) (void)first_twin(&fiber.walk);
  }
  fiber.is_finished = true;
  (void)swapcontext(&fiber.context, &g_main_context);
}

void run_swapped_stacks(Walk*, Request& request) {
  g_request = &request;
  g_fibers = std::vector<Fiber>(kFibers);
  for (unsigned i = 0; i < kFibers; ++i) {
    Fiber& fiber = g_fibers[i];
    (void)getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.memory.get();
    fiber.context.uc_stack.ss_size = kFiberStackBytes;
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(fiber_main), 1, i);
  }
  for (Fiber& fiber : g_fibers) {
    while (!fiber.is_finished) (void)swapcontext(&g_main_context, &fiber.context);
  }
}

}  // extern "C"

std::span<const CaseRow> sharing_cases() {
  static constexpr CaseRow kCases[] = {
      {"sharing", run_sharing},
      {"swapped_stacks", run_swapped_stacks},
  };
  return kCases;
}

}  // namespace workload
