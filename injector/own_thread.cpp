#include "injector/own_thread.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace gpuperf::injector {

bool start_own_thread(pthread_t& thread, const pthread_attr_t* attributes, void* (*run)(void*),
                      void* argument) {
  uint64_t all = UINT64_MAX, before = 0;
  if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(all)) != 0) return false;
  const bool is_started = pthread_create(&thread, attributes, run, argument) == 0;
  (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof(before));
  return is_started;
}

}  // namespace gpuperf::injector
