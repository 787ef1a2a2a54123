// stack_target inside of a signal handler. Which function a signal interrupted is known from where
// the program counter was: each that can be interrupted has a range of its own.

#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "walk.h"

// The linker's names for the section that holds interrupted_leaf alone.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" const char __start_interrupted_leaf_text[];
extern "C" const char __stop_interrupted_leaf_text[];
// NOLINTEND(bugprone-reserved-identifier)

namespace workload {
namespace {

constexpr uint32_t kMaxStepsBefore = 6;
constexpr uint32_t kMaxStepsInside = 6;

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool holds(uintptr_t address) const { return begin <= address && address < end; }
};

// Of the one thread of these cases.
Walk* g_walk = nullptr;             // the one that is interrupted
volatile sig_atomic_t g_armed = 0;  // the shadow stack is complete: the handler may take a sample
volatile sig_atomic_t g_done = 0;   // it has
Range g_vdso;

void expect(bool condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "stack_cases: %s\n", what);
  exit(1);
}

uintptr_t get_interrupted_address(const void* context) {
  return static_cast<uintptr_t>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
}

void send_alarm_in(uint64_t microseconds) {
  const itimerval timer{.it_interval = {},
                        .it_value = {.tv_sec = 0, .tv_usec = static_cast<long>(microseconds)}};
  expect(setitimer(ITIMER_REAL, &timer, nullptr) == 0, "setitimer");
}

void handle(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  expect(sigaction(number, &action, nullptr) == 0, "sigaction");
}

void find_vdso() {
  FILE* const maps = fopen("/proc/self/maps", "re");
  expect(maps != nullptr, "/proc/self/maps");
  char line[512];
  while (fgets(line, sizeof line, maps) != nullptr) {
    unsigned long begin = 0, end = 0;
    if (std::string(line).find("[vdso]") != std::string::npos &&
        sscanf(line, "%lx-%lx", &begin, &end) == 2) {
      g_vdso = {begin, end};
    }
  }
  fclose(maps);
  expect(g_vdso.begin != 0, "no vDSO is mapped");
  loaded_modules().push_back({.path = "[vdso]", .bias = g_vdso.begin, .symbols = "[vdso]"});
}

}  // namespace

// Functions that trap, with the instruction in a place where unwinders go wrong: the very first of
// a function, and the middle of one that has changed its frame. Each ends after the handler has
// skipped the two bytes of ud2.
extern "C" void trap_at_first();
extern "C" void trap_in_frame();
extern "C" void trap_after_frame();
asm(".text\n"
    ".type trap_at_first, @function\n"
    "trap_at_first:\n"
    "  .cfi_startproc\n"
    "  ud2\n"
    "  ret\n"
    "  .cfi_endproc\n"
    "  .size trap_at_first, . - trap_at_first\n"
    ".type trap_in_frame, @function\n"
    "trap_in_frame:\n"
    "  .cfi_startproc\n"
    "  push %rbp\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  .cfi_rel_offset %rbp, 0\n"
    "  sub $72, %rsp\n"
    "  .cfi_adjust_cfa_offset 72\n"
    "  xor %ebp, %ebp\n"
    "  ud2\n"
    "  add $72, %rsp\n"
    "  .cfi_adjust_cfa_offset -72\n"
    "  pop %rbp\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  .cfi_restore %rbp\n"
    "  ret\n"
    "  .cfi_endproc\n"
    "  .size trap_in_frame, . - trap_in_frame\n"
    // Between `pop` and `ret`, where the frame is already gone.
    ".type trap_after_frame, @function\n"
    "trap_after_frame:\n"
    "  .cfi_startproc\n"
    "  push %rbx\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  .cfi_rel_offset %rbx, 0\n"
    "  pop %rbx\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  .cfi_restore %rbx\n"
    "  ud2\n"
    "  ret\n"
    "  .cfi_endproc\n"
    "  .size trap_after_frame, . - trap_after_frame\n");

extern "C" {

[[gnu::noipa]] void on_second_signal(int, siginfo_t*, void*) {
  Walk* const walk = g_walk;
  const Frame frame(walk, __func__);
  walk->at_end = nullptr;
  walk->steps_left = static_cast<uint32_t>(next_random(walk) % kMaxStepsInside);
  walk->random += take_step(walk) & 1;
}

// A second signal inside of the first one's handler, in the C library's raise.
[[gnu::noipa]] uint64_t raise_inside(Walk* walk) {
  const Frame frame(walk, __func__);
  return static_cast<uint64_t>(raise(SIGUSR1)) + 1;
}

// On with the walk, from a handler; every other time into a second handler.
[[gnu::always_inline]] static inline void walk_in_handler(Walk* walk) {
  walk->steps_left = static_cast<uint32_t>(next_random(walk) % kMaxStepsInside);
  walk->at_end = next_random(walk) % 2 == 0 ? raise_inside : nullptr;
  walk->random += take_step(walk) & 1;
}

[[gnu::noipa]] void on_alarm(int, siginfo_t*, void* context) {
  if (!g_armed) return send_alarm_in(20);
  g_armed = 0;
  Walk* const walk = g_walk;
  const Range leaf{reinterpret_cast<uintptr_t>(__start_interrupted_leaf_text),
                   reinterpret_cast<uintptr_t>(__stop_interrupted_leaf_text)};
  std::optional<Frame> interrupted;
  if (leaf.holds(get_interrupted_address(context))) interrupted.emplace(walk, "interrupted_leaf");
  const Frame frame(walk, __func__);
  walk_in_handler(walk);
  g_done = 1;
}

// Small, so that signals come at its first and last instructions as often as in between.
[[gnu::noipa, gnu::section("interrupted_leaf_text")]] uint64_t interrupted_leaf(uint64_t a) {
  uint64_t b = a * 3, c = b ^ 5, d = c + a, e = d ^ b, f = e + c;
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f) : : "rbx", "r12", "r13");
  return a + b + c + d + e + f;
}

[[gnu::noipa]] uint64_t spin_until_alarm(Walk* walk) {
  const Frame frame(walk, __func__);
  g_walk = walk;
  g_done = 0;
  send_alarm_in(20 + next_random(walk) % 300);
  uint64_t value = 1;
  g_armed = 1;
  while (!g_done) value = interrupted_leaf(value);
  return value;
}

// Only in the vDSO a sample is taken.
[[gnu::noipa]] void on_alarm_in_vdso(int, siginfo_t*, void* context) {
  if (!g_armed || !g_vdso.holds(get_interrupted_address(context))) return send_alarm_in(20);
  g_armed = 0;
  Walk* const walk = g_walk;
  const Frame vdso(walk, "[vdso]");
  const Frame frame(walk, __func__);
  walk->at_end = nullptr;
  walk->steps_left = static_cast<uint32_t>(next_random(walk) % kMaxStepsInside);
  walk->random += take_step(walk) & 1;
  g_done = 1;
}

[[gnu::noipa]] uint64_t read_clock_until_alarm(Walk* walk) {
  const Frame frame(walk, __func__);
  g_walk = walk;
  g_done = 0;
  timespec now{};
  send_alarm_in(20 + next_random(walk) % 100);
  g_armed = 1;
  while (!g_done) clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_nsec);
}

[[gnu::noipa]] void on_trap(int, siginfo_t*, void* context) {
  constexpr int kTrapBytes = 2;
  Walk* const walk = g_walk;
  {
    const Frame frame(walk, __func__);
    walk_in_handler(walk);
  }
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += kTrapBytes;
}

[[gnu::noipa]] uint64_t call_trap(Walk* walk) {
  const Frame frame(walk, __func__);
  g_walk = walk;
  const uint64_t choice = next_random(walk) % 3;
  if (choice == 0) {
    const Frame trap(walk, "trap_at_first");
    trap_at_first();
  } else if (choice == 1) {
    const Frame trap(walk, "trap_in_frame");
    trap_in_frame();
  } else {
    const Frame trap(walk, "trap_after_frame");
    trap_after_frame();
  }
  return choice;
}

[[gnu::noipa]] static void walk_to_signal(Walk* walk, Request& request, Step at_end) {
  const Frame frame(walk, __func__);
  walk->steps = ordinary_steps();
  while (begin_walk(walk, request, kMaxStepsBefore)) {
    walk->at_end = at_end;
    walk->random += take_step(walk) & 1;
  }
}

[[gnu::noipa]] void run_signal(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  handle(SIGALRM, on_alarm, 0);
  handle(SIGUSR1, on_second_signal, 0);
  walk_to_signal(walk, request, spin_until_alarm);
}

[[gnu::noipa]] void run_signal_alternate_stack(Walk* walk, Request& request) {
  constexpr size_t kStackBytes = 4 << 20;
  const Frame frame(walk, __func__);
  void* const memory =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED, "memory for a signal stack");
  const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = kStackBytes};
  expect(sigaltstack(&stack, nullptr) == 0, "sigaltstack");
  handle(SIGALRM, on_alarm, SA_ONSTACK);
  handle(SIGUSR1, on_second_signal, SA_ONSTACK);
  walk_to_signal(walk, request, spin_until_alarm);
}

[[gnu::noipa]] void run_signal_fault(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  handle(SIGILL, on_trap, 0);
  handle(SIGUSR1, on_second_signal, 0);
  walk_to_signal(walk, request, call_trap);
}

[[gnu::noipa]] void run_vdso(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  find_vdso();
  handle(SIGALRM, on_alarm_in_vdso, 0);
  walk_to_signal(walk, request, read_clock_until_alarm);
}

}  // extern "C"

std::span<const CaseRow> signal_cases() {
  static constexpr CaseRow kCases[] = {
      {"signal", run_signal},
      {"signal_alternate_stack", run_signal_alternate_stack},
      {"signal_fault", run_signal_fault},
      {"vdso", run_vdso},
  };
  return kCases;
}

}  // namespace workload
