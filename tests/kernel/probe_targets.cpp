#include "tests/kernel/probe_targets.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>

namespace {

void spin(int us) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace

extern "C" {

__attribute__((noinline)) int target_plain(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

__attribute__((noinline)) int target_inner(int spin_us) {
  spin(spin_us);
  return 0;
}

__attribute__((noinline)) int target_outer(int inner_calls, int spin_us) {
  spin(spin_us);
  int sum = 0;
  for (int i = 0; i < inner_calls; ++i) sum += target_inner(spin_us);
  return sum;
}

__attribute__((noinline)) int target_recursive(int depth) {
  asm volatile("" : "+r"(depth));
  const int below = depth > 0 ? target_recursive(depth - 1) : 0;
  asm volatile("");
  return depth > 0 ? below + 1 : 0;
}

__attribute__((noinline)) int target_jump(std::jmp_buf* out) {
  asm volatile("");
  std::longjmp(*out, 1);
}

__attribute__((noinline)) int target_exit_thread() {
  asm volatile("");
  pthread_exit(nullptr);
}

__attribute__((noinline)) int target_fork() {
  const int child = fork();
  asm volatile("");
  return child;
}

__attribute__((noinline)) long target_arguments(long a, long b, long c, long d, long e, long f) {
  usleep(2000);
  return a + b + c + d + e + f;
}

__attribute__((noinline)) int target_sleep(int ms) {
  usleep(static_cast<useconds_t>(ms) * 1000);
  return 0;
}

__attribute__((noinline)) int target_sleep_caller(int ms) {
  const int result = target_sleep(ms);
  asm volatile("");
  return result;
}

// As a compiler with -fcf-protection writes it, whatever this one was told.
asm(".text\n"
    ".globl target_landing_pad\n"
    ".type target_landing_pad, @function\n"
    "target_landing_pad:\n"
    "  .byte 0xf3, 0x0f, 0x1e, 0xfa\n"  // endbr64
    "  push %rbp\n"
    "  mov %rsp, %rbp\n"
    "  mov %edi, %eax\n"
    "  pop %rbp\n"
    "  ret\n"
    ".size target_landing_pad, . - target_landing_pad\n");

}  // extern "C"

__attribute__((noinline)) int target_throws(int value) {
  asm volatile("" : "+r"(value));
  throw value;
}
