// Calls a function from below as many frames as told. Built into two libraries, without frame
// pointers and with them.

#include <execinfo.h>

#include <cstdint>

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

// What comes after the call keeps it a call: frames of 80 bytes or so.
[[gnu::noipa]] uint64_t go_down(uint64_t depth, uint64_t calls) {
  uint64_t numbers[4] = {};
  asm volatile("" : : "r"(numbers) : "memory");
  return (depth <= 1 ? call_target(calls) : go_down(depth - 1, calls)) + numbers[depth % 4];
}

}  // extern "C"
