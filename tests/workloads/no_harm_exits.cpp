// Calls left by exceptions, jumps, the end of a thread or of a process, and a fork inside a call.

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "cpp_target.h"
#include "no_harm.h"

namespace workload {
namespace {

constexpr uint64_t kStackBytes = 64 * 1024;  // of a thread that does nothing but wait

uint64_t return_zero(void*) { return 0; }
uint64_t throw_error(void*) { throw std::runtime_error("thrown through probed frames"); }
uint64_t end_process(void*) { _exit(0); }
uint64_t end_thread(void*) { pthread_exit(nullptr); }
uint64_t jump_back(void* back) { longjmp(*static_cast<jmp_buf*>(back), 1); }
uint64_t fork_here(void* child) {
  *static_cast<pid_t*>(child) = fork();
  return 0;
}

void wait_for_exit(pid_t child, int expected_status) {
  int status = 0;
  Case::expect(waitpid(child, &status, 0) == child, "a child can be waited for");
  Case::expect(status == expected_status, "a child ends as it should");
}

template <typename Function>
bool throws(Function function) {
  try {
    function();
  } catch (const std::exception&) {
    return true;
  }
  return false;
}

void run_throw(Case& the_case) {
  for (uint64_t i = 0; i < the_case.times; ++i) {
    Case::expect(throws([&] { the_case.target.call(throw_error, nullptr); }), "call throws");
    Case::expect(the_case.target.call(return_zero, nullptr) == 1, "call returns 1");
    the_case.call_leaf();
  }
  the_case.count_abandoned("call", the_case.times);
  the_case.count("call", the_case.times);
}

void run_throw_nested(Case& the_case) {
  for (uint64_t i = 0; i < the_case.times; ++i) {
    Case::expect(throws([&] { the_case.target.outer(throw_error, nullptr); }), "outer throws");
    Case::expect(the_case.target.outer(return_zero, nullptr) == 2, "outer returns 2");
    Case::expect(demo::rescue(throw_error, nullptr) == 0, "rescue catches");
    Case::expect(demo::rescue(return_zero, nullptr) == 2, "rescue returns 2");
  }
  the_case.count_abandoned("outer", the_case.times);
  the_case.count_abandoned("call", 2 * the_case.times);
  the_case.count("outer", the_case.times);
  the_case.count("call", 2 * the_case.times);
  the_case.count("rescue", 2 * the_case.times);
}

// From cold parts, through tail calls, and from functions with many ways out.
void run_throw_from_cold_parts(Case& the_case) {
  uint64_t thrown = 0;
  for (uint64_t i = 0; i < 10 * the_case.times; ++i) {
    thrown += throws([&] { demo::checked(i); }) ? 1 : 0;
    Case::expect(demo::choose(i) == i * (i % 8), "choose chooses");
  }
  Case::expect(thrown == the_case.times, "every tenth throws");
  for (uint64_t i = 0; i < the_case.times; ++i) {
    Case::expect(throws([&] { demo::tail(throw_error, nullptr); }), "tail throws");
    Case::expect(demo::tail(return_zero, nullptr) == 1, "tail returns 1");
  }
  the_case.count_abandoned("checked", the_case.times);
  the_case.count("checked", 9 * the_case.times);
  the_case.count("choose", 10 * the_case.times);
  uint64_t leaves = 0;  // choose calls leaf where index % 8 is 2 or 3
  for (uint64_t i = 0; i < 10 * the_case.times; ++i) leaves += i % 8 == 2 || i % 8 == 3 ? 1 : 0;
  the_case.count("leaf", leaves);
  the_case.count("tail", 2 * the_case.times);  // left by its jump, before the throw
  the_case.count_abandoned("call", the_case.times);
  the_case.count("call", the_case.times);
}

void call_and_jump_back(const Case& the_case) {
  jmp_buf back;
  if (setjmp(back) == 0) the_case.target.outer(jump_back, &back);
}

void run_longjmp(Case& the_case) {
  for (uint64_t i = 0; i < the_case.times; ++i) {
    call_and_jump_back(the_case);
    the_case.call_leaf();
  }
  the_case.count_abandoned("outer", the_case.times);
  the_case.count_abandoned("call", the_case.times);
}

void run_thread_exit(Case& the_case) {
  const auto leave = [](void* the_case) -> void* {
    static_cast<Case*>(the_case)->target.outer(end_thread, nullptr);
    return nullptr;
  };
  for (uint64_t i = 0; i < the_case.times; ++i) {
    pthread_t thread{};
    Case::expect(pthread_create(&thread, nullptr, leave, &the_case) == 0, "a thread starts");
    pthread_join(thread, nullptr);
  }
  the_case.count_abandoned("outer", the_case.times);
  the_case.count_abandoned("call", the_case.times);
}

void run_process_exit(Case& the_case) {
  for (uint64_t i = 0; i < the_case.times; ++i) {
    const pid_t child = fork();
    if (child == 0) the_case.target.outer(end_process, nullptr);
    wait_for_exit(child, 0);
  }
  the_case.count_abandoned("outer", the_case.times);
  the_case.count_abandoned("call", the_case.times);
}

// Parent and child both return from the call; the child goes on calling.
void run_fork(Case& the_case) {
  for (uint64_t i = 0; i < the_case.times; ++i) {
    pid_t child = -1;
    const uint64_t returned = the_case.target.outer(fork_here, &child);
    if (child == 0) _exit(returned == 2 && the_case.target.leaf(1) == 2 ? 0 : 1);
    Case::expect(returned == 2, "outer returns 2 in the parent");
    wait_for_exit(child, 0);
    the_case.call_leaf();
  }
  the_case.count("outer", the_case.times);
  the_case.count("call", the_case.times);
  the_case.count("leaf", the_case.times);
}

std::atomic<uint64_t> g_parked{0};

uint64_t park(void*) {
  g_parked.fetch_add(1);
  while (true) pause();
}

// A process with `threads` threads inside calls; tells through `ready` when all are.
[[noreturn]] void be_killed(const Case& the_case, int ready) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const auto enter = [](void* the_case) -> void* {
    static_cast<const Case*>(the_case)->target.outer(park, nullptr);
    return nullptr;
  };
  for (uint64_t i = 0; i < the_case.threads; ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, &attributes, enter, const_cast<Case*>(&the_case)) != 0) _exit(1);
  }
  while (g_parked.load() < the_case.threads) sleep_ns(1'000'000);
  if (write(ready, "!", 1) != 1) _exit(1);
  while (true) pause();
}

// `times` is not used: one process with many threads is the case.
void run_threads_killed(Case& the_case) {
  int ready[2];
  Case::expect(pipe(ready) == 0, "a pipe opens");
  const pid_t child = fork();
  if (child == 0) be_killed(the_case, ready[1]);
  close(ready[1]);
  char mark = 0;
  Case::expect(read(ready[0], &mark, 1) == 1, "every thread gets into its call");
  close(ready[0]);
  kill(child, SIGKILL);
  wait_for_exit(child, SIGKILL);
  the_case.count_abandoned("outer", the_case.threads);
  the_case.count_abandoned("call", the_case.threads);
  for (uint64_t i = 0; i < the_case.threads; ++i) the_case.call_leaf();
}

constexpr CaseRow kCases[] = {
    {"throw", false, true, run_throw},
    {"throw_nested", false, true, run_throw_nested},
    {"throw_from_cold_parts", false, true, run_throw_from_cold_parts},
    // Jumping over a frame with a destructor is undefined in C++.
    {"longjmp", true, false, run_longjmp},
    {"thread_exit", true, true, run_thread_exit},
    {"process_exit", true, true, run_process_exit},
    {"fork", true, true, run_fork},
    {"threads_killed", true, true, run_threads_killed},
};

}  // namespace

std::span<const CaseRow> exit_cases() { return kCases; }

}  // namespace workload
