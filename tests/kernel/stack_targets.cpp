#include "tests/kernel/stack_targets.h"

#include <signal.h>

#include <cstring>

using gpuperf::WalkStep;

namespace {

constexpr int kRecursionFrames = 300;
constexpr size_t kSignalStackBytes = 64 * 1024;
constexpr size_t kLargeBytes = 150 * 1024;

// Keeps a frame until the call before has returned.
void keep() { asm volatile("" ::: "memory"); }

[[gnu::noinline]] void recurse(const WalkStep& step, int frames) {
  if (frames > 1) {
    recurse(step, frames - 1);
  } else {
    step.run(step.context);
  }
  keep();
}

const WalkStep* signal_step = nullptr;

void on_signal(int) {
  signal_step->run(signal_step->context);
  keep();
}

[[gnu::noinline]] void raise_signal(const WalkStep& step, int flags) {
  signal_step = &step;
  struct sigaction before {};
  struct sigaction handler {};
  handler.sa_handler = on_signal;
  handler.sa_flags = flags;
  (void)sigaction(SIGUSR1, &handler, &before);
  (void)raise(SIGUSR1);
  (void)sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace

extern "C" {

[[gnu::noinline]] void stack_target(void*) { asm volatile("nop\n nop"); }

asm(".text\n"
    ".globl stack_jump\n"
    ".type stack_jump, @function\n"
    "stack_jump:\n"
    "  nop\n"
    "  jmp stack_target\n"
    ".size stack_jump, . - stack_jump\n");

[[gnu::noinline]] void stack_inner(const WalkStep& step) {
  step.run(step.context);
  keep();
}

[[gnu::noinline]] void stack_outer(const WalkStep& step) {
  stack_inner(step);
  keep();
}

[[gnu::noinline]] void stack_recursive(const WalkStep& step) {
  recurse(step, kRecursionFrames);
  keep();
}

[[gnu::noinline]] void stack_large(const WalkStep& step) {
  char memory[kLargeBytes];
  std::memset(memory, 1, sizeof memory);
  asm volatile("" ::"r"(memory) : "memory");
  step.run(step.context);
  keep();
}

[[gnu::noinline]] void stack_never_touched(const WalkStep& step) {
  char memory[kLargeBytes];
  asm volatile("" ::"r"(memory) : "memory");
  step.run(step.context);
  keep();
}

[[gnu::noinline]] void stack_signal_handler(const WalkStep& step) {
  raise_signal(step, 0);
  keep();
}

[[gnu::noinline]] void stack_signal_stack(const WalkStep& step) {
  static char memory[kSignalStackBytes];
  stack_t before{};
  stack_t own{};
  own.ss_sp = memory;
  own.ss_size = sizeof memory;
  (void)sigaltstack(&own, &before);
  raise_signal(step, SA_ONSTACK);
  (void)sigaltstack(&before, nullptr);
}

}  // extern "C"
