#pragma once

#include <pthread.h>

namespace gpuperf::injector {

// Starts a thread of the library's own. Every signal is blocked in it, so that none of the
// workload's is delivered to it. `attributes`: null = the default. False: there is no thread.
bool start_own_thread(pthread_t& thread, const pthread_attr_t* attributes, void* (*run)(void*),
                      void* argument);

}  // namespace gpuperf::injector
