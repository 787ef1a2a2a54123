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

__attribute__((noinline)) int target_operator(const void* params, const void* tensor) {
  asm volatile("" : "+r"(params), "+r"(tensor));
  return 0;
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

__attribute__((noinline)) int target_seven(uint64_t, uint64_t, const void*, const char**, void*,
                                           long, uint64_t) {
  asm volatile("");
  return 0;
}

__attribute__((noinline)) int target_allocate(void** made, uint64_t, int status) {
  if (status == 0) *made = made;
  asm volatile("" : "+r"(status));
  return status;
}

__attribute__((noinline)) int target_gemm(int, int, int, int status) {
  asm volatile("" : "+r"(status));
  return status;
}

// Every kind of exit: a return, a jump to another function, and one if the sign flag is set.
asm(".text\n"
    ".globl target_exits\n"
    ".type target_exits, @function\n"
    "target_exits:\n"
    "  push %rbp\n"
    "  pop %rbp\n"
    "  test %edi, %edi\n"
    "  js target_second\n"
    "  jne 1f\n"
    "  mov $1, %eax\n"
    "  ret\n"
    "1: cmp $2, %edi\n"
    "  je 2f\n"
    "  jmp target_second\n"
    "2: push %rsi\n"
    "  mov %esi, %edi\n"
    "  call target_inner\n"
    "  pop %rsi\n"
    "  ret\n"
    ".size target_exits, . - target_exits\n"
    ".globl target_second\n"
    ".type target_second, @function\n"
    "target_second:\n"
    "  mov %esi, %eax\n"
    "  ret\n"
    ".size target_second, . - target_second\n");

__attribute__((noinline)) int target_may_throw(int value) {
  asm volatile("" : "+r"(value));
  if (value % 2 != 0) throw value;
  return 1;
}

}  // extern "C"

__attribute__((noinline)) int target_throws(int value) {
  asm volatile("" : "+r"(value));
  throw value;
}
