#pragma once

#include <cstdint>

#include "daemon/attach/target.h"

namespace gpuperf {

// Where the functions of a process's C library are, in its memory.
struct LibcFunctions {
  uint64_t mmap = 0;
  uint64_t syscall = 0;
  uint64_t pthread_create = 0;
  uint64_t pthread_detach = 0;
  uint64_t pthread_self = 0;
  uint64_t dlopen = 0;
  uint64_t dlsym = 0;
  uint64_t dlerror = 0;
  uint64_t restorer = 0;         // calls rt_sigreturn: __restore_rt, which is not exported
  uint64_t errno_offset_at = 0;  // where a thread's errno is, from its base; 0 = not known
};

// From the files that the process has mapped: libc, and what it left in libpthread and libdl before
// glibc 2.34. NotFound names what is missing.
Result<LibcFunctions> find_libc_functions(const ProcFiles& files, CodeFiles& code_files,
                                          const AttachTarget& target);

}  // namespace gpuperf
