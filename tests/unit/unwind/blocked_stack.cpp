#include "tests/unit/unwind/blocked_stack.h"

#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gpuperf {
namespace {

struct Pipes {
  int output = -1;
  int input = -1;
};

// Keeps what comes before a call before it, and the frame until the call has returned.
void keep() { asm volatile("" ::: "memory"); }

// The one with a frame pointer: there stand the caller's, and above it the return address.
[[gnu::noinline]] void block(BlockedStack& stack, const Pipes& pipes) {
  const auto frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  stack.sp = frame + 8;
  std::memcpy(&stack.bp, reinterpret_cast<const void*>(frame), sizeof stack.bp);
  stack.thread_pointer = pthread_self();
  void* addresses[129];
  const int count = backtrace(addresses, 129);
  stack.caller_count = static_cast<size_t>(std::max(count - 1, 0));
  for (size_t i = 0; i < stack.caller_count; ++i) {
    stack.callers[i] = reinterpret_cast<uint64_t>(addresses[i + 1]);
  }
  uint64_t word = 1;
  if (write(pipes.output, &word, sizeof word) == sizeof word) {
    while (read(pipes.input, &word, sizeof word) > 0) {
    }
  }
  _exit(0);
}

[[gnu::noinline]] void need_no_frame_pointer(BlockedStack& stack, const Pipes& pipes) {
  char memory[300];
  asm volatile("" ::"r"(memory) : "memory");
  block(stack, pipes);
  keep();
}

[[gnu::noinline]] void allocate(BlockedStack& stack, const Pipes& pipes, size_t size_bytes) {
  auto* const memory = static_cast<char*>(alloca(size_bytes));
  asm volatile("" ::"r"(memory) : "memory");
  need_no_frame_pointer(stack, pipes);
  keep();
}

[[gnu::noinline]] void align(BlockedStack& stack, const Pipes& pipes, size_t size_bytes) {
  alignas(64) char memory[256];
  asm volatile("" ::"r"(memory) : "memory");
  allocate(stack, pipes, size_bytes);
  keep();
}

// Called by the C library.
int compare(const void* left, const void*, void* context) {
  auto* const known = static_cast<std::pair<BlockedStack*, Pipes>*>(context);
  align(*known->first, known->second, 1000 + *static_cast<const int*>(left) % 2);
  keep();
  return 0;
}

}  // namespace

void block_in_known_functions(BlockedStack& stack, int output, int input) {
  std::pair<BlockedStack*, Pipes> known{&stack, Pipes{.output = output, .input = input}};
  int numbers[2] = {1, 2};
  qsort_r(numbers, 2, sizeof numbers[0], compare, &known);
  keep();
}

}  // namespace gpuperf
