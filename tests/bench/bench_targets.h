#pragma once

// Functions that return at once, one for each way in which the functions of the CUDA and PyTorch
// libraries begin: that instruction decides what a probe costs.

extern "C" {
int bench_push(int value);     // push %rbp
int bench_endbr64(int value);  // endbr64, then push
int bench_sub(int value);      // sub $24, %rsp
int bench_mov(int value);      // mov, then push
int bench_test(int value);     // test, then a conditional jump
}
