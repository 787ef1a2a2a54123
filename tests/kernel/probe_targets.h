#pragma once

// Functions with known behaviour, probed by the tests of this folder.

#include <csetjmp>

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
int target_landing_pad(int value, int second);  // begins with endbr64 and push; returns value
}

int target_throws(int value);  // throws value
