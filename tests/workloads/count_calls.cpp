// Calls the functions of libcount_target.so a known number of times from many threads and, with
// --fork, from two processes at once. Prints one JSON line per process:
//   {"program":"count_calls","role":"parent","pid":71,"ppid":70,"threads":8,"elapsed_ns":...,
//    "calls":{"count_fast":{"calls":16,"errors":{}},...}}
// count_fast is called by the program and once by every count_nested: twice `--calls` per thread.
// With --recurse, every tenth round makes a recursion so deep.

#include <sys/wait.h>

#include <string>
#include <thread>
#include <vector>

#include "count_target.h"
#include "options.h"
#include "truth.h"

namespace {

using namespace workload;

struct Plan {
  uint64_t threads = 1;
  uint64_t calls = 0;
  uint64_t spin_ns = 0;
  uint64_t recurse = 0;  // depth; 0 = no recursion
};

Truth call_all(const Plan& plan) {
  Truth truth;
  FunctionTruth& fast = truth["count_fast"];
  FunctionTruth& status = truth["count_status"];
  FunctionTruth& nested = truth["count_nested"];
  uint64_t sum = 0;
  for (uint64_t index = 0; index < plan.calls; ++index) {
    sum += count_fast(index, plan.spin_ns);
    count_call(fast, 0);
    count_call(status, count_status(index));
    sum += count_nested(index, plan.spin_ns);
    count_call(nested, 0);
    count_call(fast, 0);
    if (plan.recurse != 0 && index % 10 == 0) {
      truth["count_recurse"].calls += count_recurse(plan.recurse);
    }
  }
  volatile uint64_t sink = sum;  // keeps the results in use
  (void)sink;
  return truth;
}

Truth run_threads(const Plan& plan) {
  std::vector<Truth> truths(plan.threads);
  std::vector<std::thread> threads;
  for (Truth& truth : truths) {
    threads.emplace_back([&plan, &truth] { truth = call_all(plan); });
  }
  for (std::thread& thread : threads) thread.join();
  Truth total;
  for (const Truth& truth : truths) merge_truth(total, truth);
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--threads", "1"},
                         {"--calls", "1000"},  // per thread and function
                         {"--spin-ns", "0"},
                         {"--recurse", "0"},
                         {"--fork", "no"},
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  const Plan plan{options.get_count("--threads"), options.get_count("--calls"),
                  options.get_count("--spin-ns"), options.get_count("--recurse")};

  const pid_t child = options.is_set("--fork") ? fork() : -1;
  if (options.is_set("--fork") && child < 0) {
    perror("fork");
    return 1;
  }
  const bool is_child = options.is_set("--fork") && child == 0;
  wait_for_file(options.get_text("--wait-for-file"));

  const uint64_t start_ns = now_mono_ns();
  const Truth truth = run_threads(plan);
  const uint64_t elapsed_ns = now_mono_ns() - start_ns;
  print_line(
      "{\"program\":\"count_calls\",\"role\":\"" + std::string(is_child ? "child" : "parent") +
      "\",\"pid\":" + std::to_string(getpid()) + ",\"ppid\":" + std::to_string(getppid()) +
      ",\"threads\":" + std::to_string(plan.threads) +
      ",\"elapsed_ns\":" + std::to_string(elapsed_ns) + ",\"calls\":" + render_truth(truth) + "}");
  wait_for_file(options.get_text("--linger-for-file"));

  if (child <= 0) return 0;
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) {
    fprintf(stderr, "count_calls: the forked process %d ended with status %d\n", child, status);
    return 1;
  }
  return 0;
}
