// Leaves C functions in every way but by returning, and C++ functions by exceptions. Prints one
// JSON line; a call left by longjmp or by the thread's end is counted under "abandoned":
//   {"program":"odd_exits","pid":71,"calls":{"leave_by_longjmp":{"calls":10,"errors":{}},...},
//    "abandoned":{"leave_by_longjmp":10,"leave_with_thread":10}}
// The last call of a process is inside leave_with_process when it ends, if --end-inside is given.

#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>

#include <stdexcept>
#include <string>

#include "options.h"
#include "truth.h"

using namespace workload;

extern "C" {

jmp_buf g_back;  // of the main thread, the only one that jumps

void leave_by_longjmp() { longjmp(g_back, 1); }
void leave_with_thread() { pthread_exit(nullptr); }
void leave_with_process() { _exit(0); }

// Calls itself until `depth` calls are open at once.
uint64_t recurse(uint64_t depth) { return depth <= 1 ? 1 : recurse(depth - 1) + 1; }

// Forks inside the call: parent and child both return from it. The child ends at once.
int fork_inside() { return fork(); }

}  // extern "C"

namespace demo {

// Mangled, as C++ functions are: gets no return probe, or the throw would end the process.
int might_throw(uint64_t index) {
  if (index % 10 == 3) throw std::runtime_error("every tenth call");
  return static_cast<int>(index);
}

}  // namespace demo

namespace {

void* run_thread(void*) {
  leave_with_thread();
  return nullptr;
}

void call_and_jump_back() {
  if (setjmp(g_back) == 0) leave_by_longjmp();
}

bool run_threads(uint64_t times) {
  for (uint64_t i = 0; i < times; ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, run_thread, nullptr) != 0) return false;
    pthread_join(thread, nullptr);
  }
  return true;
}

uint64_t count_throws(uint64_t times) {
  uint64_t caught = 0;
  for (uint64_t i = 0; i < times; ++i) {
    try {
      demo::might_throw(i);
    } catch (const std::runtime_error&) {
      ++caught;
    }
  }
  return caught;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--times", "10"},
                         {"--depth", "5"},
                         {"--end-inside", "no"},
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  const uint64_t times = options.get_count("--times");
  wait_for_file(options.get_text("--wait-for-file"));

  for (uint64_t i = 0; i < times; ++i) call_and_jump_back();
  if (!run_threads(times)) {
    perror("odd_exits: pthread_create");
    return 1;
  }
  const uint64_t caught = count_throws(times);
  const uint64_t depth = recurse(options.get_count("--depth"));
  const int child = fork_inside();
  if (child == 0) _exit(0);
  if (child < 0 || waitpid(child, nullptr, 0) != child) {
    perror("odd_exits: fork");
    return 1;
  }

  Truth truth;
  truth["leave_by_longjmp"].calls = times;
  truth["leave_with_thread"].calls = times;
  truth["might_throw"].calls = times;
  truth["recurse"].calls = depth;
  truth["fork_inside"].calls = 1;
  truth["leave_with_process"].calls = options.is_set("--end-inside") ? 1 : 0;
  print_line("{\"program\":\"odd_exits\",\"pid\":" + std::to_string(getpid()) +
             ",\"caught\":" + std::to_string(caught) + ",\"calls\":" + render_truth(truth) +
             ",\"abandoned\":{\"leave_by_longjmp\":" + std::to_string(times) +
             ",\"leave_with_thread\":" + std::to_string(times) + "}}");
  wait_for_file(options.get_text("--linger-for-file"));
  if (options.is_set("--end-inside")) leave_with_process();
  return 0;
}
