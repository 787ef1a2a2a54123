// More threads, more processes, and a process that becomes another program.

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "walk.h"

namespace workload {
namespace {

constexpr uint32_t kMaxSteps = 10;

[[noreturn]] void fail(const char* what) {
  perror(what);
  exit(1);
}

struct Thread {
  Request& request;
  Walk walk;
  pthread_t id{};
};

// Of the forking case's one thread.
Request* g_request = nullptr;
Walk* g_exit_walk = nullptr;  // the one to go on with in an exit handler

}  // namespace

extern "C" {

[[gnu::noipa]] void* thread_main(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  Walk* const walk = &thread.walk;
  const Frame frame(walk, __func__);
  note_start(walk);
  walk->steps = ordinary_steps();
  walk_all(walk, thread.request, kMaxSteps);
  return nullptr;
}

// Stacks of several sizes, all over the address space.
void run_threads(Walk*, Request& request) {
  std::vector<Thread> threads(request.threads, Thread{request, {}});
  for (size_t i = 0; i < threads.size(); ++i) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (2 + i % 5) << 20);
    if (pthread_create(&threads[i].id, &attributes, thread_main, &threads[i]) != 0) {
      fail("pthread_create");
    }
    pthread_attr_destroy(&attributes);
  }
  for (Thread& thread : threads) pthread_join(thread.id, nullptr);
}

// Inside of exit(), with the frames of who called it still there.
[[gnu::noipa]] void walk_at_exit() {
  if (g_exit_walk == nullptr) return;
  const Frame frame(g_exit_walk, __func__);
  if (!begin_walk(g_exit_walk, *g_request, kMaxSteps)) return;
  g_exit_walk->random += take_step(g_exit_walk) & 1;
}

// Forks in the middle of a walk: the child walks on from here, and exits from here.
[[gnu::noipa]] uint64_t fork_inside(Walk* walk) {
  constexpr uint64_t kChildSamples = 5;
  const Frame frame(walk, __func__);
  Request& request = *g_request;
  walk->at_end = nullptr;
  const uint64_t first = request.next_sample.fetch_add(kChildSamples);
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    const uint64_t end = std::min(request.last_sample + 1, first + kChildSamples);
    request.next_sample = first;
    request.last_sample = end - 2;
    walk_all(walk, request, kMaxSteps);
    request.next_sample = end - 1;
    request.last_sample = end - 1;
    g_exit_walk = walk;
    exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) fail("a child failed");
  return take_sample(walk);
}

[[gnu::noipa]] void run_fork(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  g_request = &request;
  atexit(walk_at_exit);
  walk->steps = ordinary_steps();
  while (begin_walk(walk, request, kMaxSteps)) {
    // Numbers are reserved for a child before it is there: the last few samples have none.
    walk->at_end = walk->sample + 6 <= request.last_sample ? fork_inside : nullptr;
    walk->random += take_step(walk) & 1;
  }
}

// After some samples becomes the program that is the first argument, which becomes this one again.
[[gnu::noipa]] void run_exec(Walk* walk, Request& request) {
  constexpr uint64_t kSamplesPerProgram = 40;
  const Frame frame(walk, __func__);
  if (request.arguments.empty()) fail("exec: the other program is not given");
  const uint64_t last = request.last_sample;
  request.last_sample = std::min(last, request.next_sample + kSamplesPerProgram - 1);
  const uint64_t next = request.last_sample + 1;
  walk->steps = ordinary_steps();
  walk_all(walk, request, kMaxSteps);
  if (next > last) return;

  std::vector<std::string> words = {request.arguments[0], "--case", "exec"};
  const auto add = [&](const char* name, const std::string& value) {
    words.insert(words.end(), {name, value});
  };
  add("--first-sample", std::to_string(next));
  add("--samples", std::to_string(last));
  add("--pause-us", std::to_string(request.pause_ns / 1000));
  add("--target-us", std::to_string(request.target_ns / 1000));
  add("--seed", std::to_string(request.seed));
  add("--linger-for-file", request.linger_path);
  add("--argument", loaded_modules().front().path);
  std::vector<char*> pointers(words.size() + 1, nullptr);
  std::ranges::transform(words, pointers.begin(), [](std::string& word) { return word.data(); });
  execv(pointers[0], pointers.data());
  fail(pointers[0]);
}

}  // extern "C"

std::span<const CaseRow> process_cases() {
  static constexpr CaseRow kCases[] = {
      {"threads", run_threads},
      {"fork", run_fork},
      {"exec", run_exec},
  };
  return kCases;
}

}  // namespace workload
