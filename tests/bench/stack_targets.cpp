// Calls a function from below as many frames as told. Built into two libraries, without frame
// pointers and with them.

#include <execinfo.h>
#include <time.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// Probed. In assembly: the kernel emulates its first instruction, so what a probe costs is little.
asm(R"(
  .text
  .balign 16
  .globl stack_target
  .type stack_target, @function
stack_target:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  mov %rdi, %rax
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size stack_target, . - stack_target
)");

extern "C" {

uint64_t stack_target(uint64_t value);

// The frames around its caller, that one included.
[[gnu::noipa]] uint64_t count_frames() {
  void* addresses[512];
  return static_cast<uint64_t>(backtrace(addresses, 512)) - 1;
}

[[gnu::noipa]] uint64_t call_target(uint64_t calls) {
  uint64_t sum = calls == 0 ? count_frames() : 0;
  for (uint64_t i = 0; i < calls; ++i) sum += stack_target(i);
  return sum;
}

[[gnu::noipa]] uint64_t call_target_once(uint64_t value) {
  return value == 0 ? count_frames() : stack_target(value) + 1;
}

// What comes after the call keeps it a call: frames of 80 bytes or so.
[[gnu::noipa]] uint64_t go_down(uint64_t depth, uint64_t calls) {
  uint64_t numbers[4] = {};
  asm volatile("" : : "r"(numbers) : "memory");
  return (depth <= 1 ? call_target(calls) : go_down(depth - 1, calls)) + numbers[depth % 4];
}

// Two ways down to the same call: of a stack that took the other one the last time, so many frames
// have changed.
[[gnu::noipa]] uint64_t go_one_way(uint64_t depth, uint64_t value) {
  uint64_t numbers[4] = {};
  asm volatile("" : : "r"(numbers) : "memory");
  return (depth <= 1 ? call_target_once(value) : go_one_way(depth - 1, value)) + numbers[depth % 4];
}

[[gnu::noipa]] uint64_t go_other_way(uint64_t depth, uint64_t value) {
  uint64_t numbers[4] = {};
  asm volatile("" : : "r"(numbers) : "memory");
  return (depth <= 1 ? call_target_once(value) : go_other_way(depth - 1, value)) +
         numbers[depth % 4] + 1;
}

// As go_down, but the innermost `changing` frames are others with each call.
[[gnu::noipa]] uint64_t go_down_changing(uint64_t depth, uint64_t changing, uint64_t calls) {
  uint64_t numbers[4] = {};
  asm volatile("" : : "r"(numbers) : "memory");
  if (depth > changing + 1)
    return go_down_changing(depth - 1, changing, calls) + numbers[depth % 4];
  if (calls == 0) return go_one_way(changing, 0);
  for (uint64_t i = 0; i < calls; ++i) {
    numbers[i % 4] += i % 2 == 0 ? go_one_way(changing, i + 1) : go_other_way(changing, i + 1);
  }
  return numbers[depth % 4];
}

}  // extern "C"

namespace {

constexpr size_t kWays = 64;
constexpr uint64_t kWaySteps = 40;

uint64_t get_thread_ns() {
  timespec time{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// What a program's own work does to the caches.
[[gnu::noipa]] void touch_memory(size_t size_bytes) {
  static std::vector<uint64_t> memory;
  if (memory.size() < size_bytes / 8) memory.resize(size_bytes / 8, 1);
  for (size_t i = 0; i < size_bytes / 8; i += 8) memory[i] += 1;
}

struct Call {
  uint64_t is_count = 0;
  size_t touched_bytes = 0;  // before it
};

// Nanoseconds, of the call only; or the frames.
[[gnu::noipa]] uint64_t call_target_timed(const Call& call) {
  if (call.is_count != 0) return count_frames();
  touch_memory(call.touched_bytes);
  const uint64_t start_ns = get_thread_ns();
  (void)stack_target(1);
  return get_thread_ns() - start_ns;
}

using Step = uint64_t (*)(uint64_t left, const Call& call);
extern const std::array<Step, kWays * kWaySteps> kSteps;

// Frames of several sizes, as one finds them.
template <size_t kIndex>
[[gnu::noipa]] uint64_t step(uint64_t left, const Call& call) {
  uint64_t numbers[4 + kIndex % 7] = {};
  asm volatile("" : : "r"(numbers) : "memory");
  return (left <= 1 ? call_target_timed(call)
                    : kSteps[(kIndex + 1) % kSteps.size()](left - 1, call)) +
         numbers[left % 4];
}

template <size_t... kIndices>
constexpr std::array<Step, sizeof...(kIndices)> make_steps(std::index_sequence<kIndices...>) {
  return {step<kIndices>...};
}

constinit const std::array<Step, kWays* kWaySteps> kSteps =
    make_steps(std::make_index_sequence<kWays * kWaySteps>());

}  // namespace

// As go_down, but inside of that 64 ways of 40 frames each take turns, which begin so many
// functions (up to 40, of which each way has its own) after each other. The sum of the calls'
// nanoseconds.
extern "C" [[gnu::noipa]] uint64_t go_down_ways(uint64_t depth, uint64_t apart,
                                                uint64_t touched_bytes, uint64_t calls) {
  uint64_t numbers[4] = {};
  asm volatile("" : : "r"(numbers) : "memory");
  if (depth > 1) {
    return go_down_ways(depth - 1, apart, touched_bytes, calls) + numbers[depth % 4];
  }
  const Call call{.is_count = calls == 0 ? 1U : 0U, .touched_bytes = touched_bytes};
  for (uint64_t i = 0; i < calls; ++i) {
    numbers[0] += kSteps[i * 37 % kWays * apart](kWaySteps, call);
  }
  return calls == 0 ? kSteps[0](kWaySteps, call) : numbers[0];
}
