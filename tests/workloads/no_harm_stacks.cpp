// Probed calls on more than one stack of a thread: coroutines, and signal handlers inside a call.
// Each case runs on a thread whose stack lies between the two others, because what tells frames
// apart by their stack pointers errs in one direction only.

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <functional>

#include "no_harm.h"

namespace workload {
namespace {

constexpr uint64_t kStackBytes = 256 * 1024;

// Stores the caller's registers on its stack and the stack pointer in `from`, then goes on where
// the stack `to` was left.
extern "C" void no_harm_switch_stack(void** from, void* to);
asm(".text\n"
    ".type no_harm_switch_stack, @function\n"
    "no_harm_switch_stack:\n"
    "  push %rbp\n"
    "  push %rbx\n"
    "  push %r12\n"
    "  push %r13\n"
    "  push %r14\n"
    "  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n"
    "  pop %r14\n"
    "  pop %r13\n"
    "  pop %r12\n"
    "  pop %rbx\n"
    "  pop %rbp\n"
    "  ret\n"
    ".size no_harm_switch_stack, . - no_harm_switch_stack\n");

// A flow of control with a stack of its own.
struct Fiber {
  ucontext_t context{};
  void* stack_pointer = nullptr;
};
using Swap = void (*)(Fiber& from, Fiber& to);

void swap_contexts(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }
void swap_by_hand(Fiber& from, Fiber& to) {
  no_harm_switch_stack(&from.stack_pointer, to.stack_pointer);
}

// Of the one thread that runs a case.
struct Scene {
  Case* the_case = nullptr;
  Swap swap = nullptr;
  Fiber main;
  Fiber fibers[2];
  Fiber* running = nullptr;
};
Scene g_scene;

void resume(Fiber& fiber) {
  g_scene.running = &fiber;
  g_scene.swap(g_scene.main, fiber);
}

uint64_t yield(void*) {
  g_scene.swap(*g_scene.running, g_scene.main);
  return 0;
}

// Enters a call, is resumed inside it, returns from it, and so on.
void call_forever() {
  while (true) {
    Case::expect(g_scene.the_case->target.call(yield, nullptr) == 1, "call returns 1");
    yield(nullptr);
  }
}

void begin_fiber(Fiber& fiber, char* stack) {
  getcontext(&fiber.context);
  fiber.context.uc_stack = {.ss_sp = stack, .ss_flags = 0, .ss_size = kStackBytes};
  makecontext(&fiber.context, call_forever, 0);
  // For the switch by hand: six registers, the address to return to, and the stack as a call leaves
  // it (16 bytes aligned before the return address is pushed).
  void** top = reinterpret_cast<void**>(stack + kStackBytes) - 2;
  top[-1] = reinterpret_cast<void*>(&call_forever);
  fiber.stack_pointer = top - 7;
}

// Runs `body` on a thread between two stacks, the lower and the higher one.
void run_between_stacks(const std::function<void(char* lower, char* higher)>& body) {
  struct Start {
    const std::function<void(char*, char*)>& body;
    char* block;
  };
  void* const block =
      mmap(nullptr, 3 * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Case::expect(block != MAP_FAILED, "memory for three stacks");
  Start start{body, static_cast<char*>(block)};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, start.block + kStackBytes, kStackBytes);
  pthread_t thread{};
  const auto run = [](void* argument) -> void* {
    const auto& start = *static_cast<Start*>(argument);
    start.body(start.block, start.block + 2 * kStackBytes);
    return nullptr;
  };
  Case::expect(pthread_create(&thread, &attributes, run, &start) == 0, "a thread starts");
  pthread_join(thread, nullptr);
  munmap(block, 3 * kStackBytes);
}

void begin_scene(Case& the_case, Swap swap, char* lower, char* higher) {
  g_scene.the_case = &the_case;
  g_scene.swap = swap;
  begin_fiber(g_scene.fibers[0], lower);
  begin_fiber(g_scene.fibers[1], higher);
}

// One coroutine at a time is inside a call while the thread makes other calls.
void take_turns(Case& the_case, Swap swap) {
  run_between_stacks([&](char* lower, char* higher) {
    begin_scene(the_case, swap, lower, higher);
    for (uint64_t i = 0; i < the_case.times; ++i) {
      for (Fiber& fiber : g_scene.fibers) {
        resume(fiber);         // into the call
        the_case.call_leaf();  // on the thread's own stack
        resume(fiber);         // out of it
      }
    }
    the_case.count("call", 2 * the_case.times);
  });
}

// Both coroutines are inside a call at once, and the first in is the first out.
void cross(Case& the_case, Swap swap) {
  run_between_stacks([&](char* lower, char* higher) {
    begin_scene(the_case, swap, lower, higher);
    auto& [low, high] = g_scene.fibers;
    for (uint64_t i = 0; i < the_case.times; ++i) {
      Fiber& first = i % 2 == 0 ? low : high;
      Fiber& second = i % 2 == 0 ? high : low;
      resume(first);
      the_case.call_leaf();
      resume(second);
      the_case.call_leaf();
      resume(first);
      the_case.call_leaf();
      resume(second);
    }
    the_case.count("call", 2 * the_case.times);
  });
}

void run_coroutine(Case& the_case) { take_turns(the_case, swap_contexts); }
void run_coroutine_crossing(Case& the_case) { cross(the_case, swap_contexts); }
void run_stack_switch(Case& the_case) { take_turns(the_case, swap_by_hand); }
void run_stack_switch_crossing(Case& the_case) { cross(the_case, swap_by_hand); }

uint64_t return_zero(void*) { return 0; }
uint64_t raise_here(void*) {
  raise(SIGUSR1);
  return 0;
}

void on_signal(int) {
  g_scene.the_case->call_leaf();
  Case::expect(g_scene.the_case->target.outer(return_zero, nullptr) == 2, "outer returns 2");
}

// The handler makes probed calls inside a probed call, on `stack`; null = on the interrupted one.
void raise_inside_calls(Case& the_case, char* stack) {
  g_scene.the_case = &the_case;
  const stack_t given{.ss_sp = stack, .ss_flags = stack ? 0 : SS_DISABLE, .ss_size = kStackBytes};
  Case::expect(sigaltstack(&given, nullptr) == 0, "a signal stack is taken");
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = stack ? SA_ONSTACK : 0;
  Case::expect(sigaction(SIGUSR1, &action, nullptr) == 0, "a handler is taken");
  for (uint64_t i = 0; i < the_case.times; ++i) {
    Case::expect(the_case.target.call(raise_here, nullptr) == 1, "call returns 1");
  }
  the_case.count("call", 2 * the_case.times);  // one of them by outer, in the handler
  the_case.count("outer", the_case.times);
}

void run_signal(Case& the_case) { raise_inside_calls(the_case, nullptr); }

void run_sigaltstack(Case& the_case) {
  run_between_stacks([&](char* lower, char* higher) {
    raise_inside_calls(the_case, lower);
    raise_inside_calls(the_case, higher);
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
  });
}

constexpr CaseRow kCases[] = {
    {"coroutine", true, true, run_coroutine},
    {"coroutine_crossing", true, true, run_coroutine_crossing},
    {"stack_switch", true, true, run_stack_switch},
    {"stack_switch_crossing", true, true, run_stack_switch_crossing},
    {"signal", true, true, run_signal},
    {"sigaltstack", true, true, run_sigaltstack},
};

}  // namespace

std::span<const CaseRow> stack_cases() { return kCases; }

}  // namespace workload
