#include "bench_targets.h"

// In assembly: a compiler chooses its own first instruction.
#define BENCH_FUNCTION(NAME, BODY)                                                      \
  asm(".text\n.balign 16\n.globl " NAME "\n.type " NAME ", @function\n" NAME ":\n" BODY \
      ".size " NAME ", . - " NAME "\n")

BENCH_FUNCTION("bench_push",
               "  push %rbp\n"
               "  mov %rsp, %rbp\n"
               "  mov %edi, %eax\n"
               "  pop %rbp\n"
               "  ret\n");
BENCH_FUNCTION("bench_endbr64",
               "  .byte 0xf3, 0x0f, 0x1e, 0xfa\n"
               "  push %rbp\n"
               "  mov %rsp, %rbp\n"
               "  mov %edi, %eax\n"
               "  pop %rbp\n"
               "  ret\n");
BENCH_FUNCTION("bench_sub",
               "  sub $24, %rsp\n"
               "  mov %edi, %eax\n"
               "  add $24, %rsp\n"
               "  ret\n");
BENCH_FUNCTION("bench_mov",
               "  mov %edi, %eax\n"
               "  push %rbx\n"
               "  mov %eax, %ebx\n"
               "  pop %rbx\n"
               "  ret\n");
BENCH_FUNCTION("bench_test",
               "  test %edi, %edi\n"
               "  js 1f\n"
               "  mov %edi, %eax\n"
               "  ret\n"
               "1: xor %eax, %eax\n"
               "  ret\n");
