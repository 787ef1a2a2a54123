#pragma once

// Functions with known behaviour, probed by the tests of this folder.

#include <csetjmp>
#include <cstdint>

extern "C" {
int target_plain(int value);                     // returns value
int target_outer(int inner_calls, int spin_us);  // spins, calls target_inner that often
int target_inner(int spin_us);                   // spins, returns 0
int target_recursive(int depth);                 // calls itself `depth` times, returns depth
int target_jump(std::jmp_buf* out);              // longjmps out instead of returning
int target_exit_thread();                        // ends the calling thread
int target_fork();                               // forks; the child returns too. The child's pid
long target_arguments(long a, long b, long c, long d, long e, long f);  // sleeps 2 ms; a+b+c+d+e+f
int target_sleep_caller(int ms);  // calls target_sleep, so that it is in the stack
int target_sleep(int ms);
int target_operator(const void* params, const void* tensor);
int target_landing_pad(int value, int second);  // begins with endbr64 and push; returns value
// Returns 0; for arguments by plan, the seventh on the stack.
int target_seven(uint64_t kind, uint64_t packed, const void* outer, const char** text, void* null,
                 long unused, uint64_t count);
int target_allocate(void** made, uint64_t bytes, int status);  // returns status; 0: *made = made
int target_gemm(int m, int n, int k, int status);              // returns status
// 0: returns 1 in the middle. 2: spins value us, returns at the end. Else jumps to a function that
// returns value: by a conditional jump when mode is negative.
int target_exits(int mode, int value);
int target_may_throw(int value);  // throws odd values, returns 1 for even ones
}

int target_throws(int value);  // throws value
