// Launches through hooks, told line by line what to do, with an answer in JSON to each:
//   launch COUNT MICROSECONDS STATUS [WAY]  from launch_here()
//   outer COUNT MICROSECONDS [WAY]          launches inside outer_call(); its time and theirs
//   graph COUNT
//   noted MICROSECONDS                      calls that take so long are noted as slow
//   flush                                   hands over what was counted
//   totals                                  of cuLaunchKernel, since the program began
//   semaphores
//   execute                                 this program anew, without a flush
// WAY, in which the driver passes that time; without one it spins:
//   sleep   sleeps
//   mutex   waits for a thread that holds a mutex; the answer has its id
//   inner   sleeps in inner_call()
//   leave   not at all: it leaves the launch by longjmp

#include <pthread.h>
#include <setjmp.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <thread>

#include "standin/launch_standin.h"

namespace {

constexpr uintptr_t kFunction = 0x7000;
constexpr uintptr_t kExec = 0x8000;
constexpr uintptr_t kStream = 0x9000;

std::atomic<pid_t> holder = 0;
pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
jmp_buf place_to_go;

void sleep_for(uint32_t microseconds) {
  const timespec duration{microseconds / 1'000'000, microseconds % 1'000'000 * 1000L};
  nanosleep(&duration, nullptr);
}

}  // namespace

extern "C" {

int inner_call(uint32_t microseconds) {
  sleep_for(microseconds);
  return 0;
}

void hold_mutex(uint32_t microseconds) {
  pthread_mutex_lock(&held);
  holder = gettid();
  sleep_for(microseconds);
  pthread_mutex_unlock(&held);
}
}

namespace {

using Way = void (*)(uint32_t);

void wait_for_mutex(uint32_t) {
  pthread_mutex_lock(&held);
  pthread_mutex_unlock(&held);
}

Way find_way(const char* name) {
  if (strcmp(name, "sleep") == 0) return sleep_for;
  if (strcmp(name, "mutex") == 0) return wait_for_mutex;
  if (strcmp(name, "inner") == 0)
    return [](uint32_t microseconds) { (void)inner_call(microseconds); };
  if (strcmp(name, "leave") == 0) return [](uint32_t) { longjmp(place_to_go, 1); };
  return nullptr;
}

}  // namespace

extern "C" {

void launch_here(uint32_t microseconds, int status, Way way) {
  if (setjmp(place_to_go) != 0) return;
  (void)hooked_launch(reinterpret_cast<void*>(kFunction), 2, 3, 4, 64, 5, 6, microseconds,
                      reinterpret_cast<void*>(kStream), reinterpret_cast<void**>(way),
                      reinterpret_cast<void**>(static_cast<intptr_t>(status)));
}

int outer_call(int count, uint32_t microseconds, Way way) {
  for (int i = 0; i < count; ++i) launch_here(microseconds, 0, way);
  return 0;
}
}

namespace {

// Holds the mutex when this returns.
std::thread start_holder(uint32_t microseconds) {
  holder = 0;
  std::thread thread(hold_mutex, microseconds);
  while (holder == 0) sched_yield();
  return thread;
}

}  // namespace

int main(int argc, char**) {
  char line[256];
  if (argc > 1 && puts("{}") != EOF) (void)fflush(stdout);  // the answer to what executed it
  while (fgets(line, sizeof line, stdin) != nullptr) {
    int count = 0, status = 0;
    uint32_t microseconds = 0;
    char way[16] = "";
    if (sscanf(line, "launch %d %" SCNu32 " %d %15s", &count, &microseconds, &status, way) >= 3) {
      for (int i = 0; i < count; ++i) {
        std::thread thread;
        if (find_way(way) == wait_for_mutex) thread = start_holder(microseconds);
        launch_here(microseconds, status, find_way(way));
        if (thread.joinable()) thread.join();
      }
      printf("{\"holder\":%d}\n", holder.load());
    } else if (sscanf(line, "outer %d %" SCNu32 " %15s", &count, &microseconds, way) >= 2) {
      const uint64_t before_ns = get_hooked_totals().total_ns;
      (void)outer_call(count, microseconds, find_way(way));
      printf("{\"launches_ns\":%" PRIu64 "}\n", get_hooked_totals().total_ns - before_ns);
    } else if (sscanf(line, "graph %d", &count) == 1) {
      for (int i = 0; i < count; ++i) {
        (void)hooked_graph_launch(reinterpret_cast<void*>(kExec), nullptr);
      }
      printf("{}\n");
    } else if (sscanf(line, "noted %" SCNu32, &microseconds) == 1) {
      set_noted_slow_ns(1000ull * microseconds);
      printf("{}\n");
    } else if (strcmp(line, "flush\n") == 0) {
      flush_hooked_calls();
      printf("{}\n");
    } else if (strcmp(line, "totals\n") == 0) {
      const hooked_totals totals = get_hooked_totals();
      printf("{\"calls\":%" PRIu64 ",\"traps\":%" PRIu64 ",\"errors\":%" PRIu64
             ",\"total_ns\":%" PRIu64 ",\"min_ns\":%" PRIu64 ",\"max_ns\":%" PRIu64 "}\n",
             totals.calls, totals.traps, totals.errors, totals.total_ns, totals.min_ns,
             totals.max_ns);
    } else if (strcmp(line, "execute\n") == 0) {
      (void)execl("/proc/self/exe", "hooked_launches", "executed", nullptr);
      return 1;
    } else if (strcmp(line, "semaphores\n") == 0) {
      const char* const names[7] = {"count",  "calls",    "slow", "launch",
                                    "thread", "launches", "each"};
      unsigned values[7];
      read_semaphores(values);
      for (int i = 0; i < 7; ++i) printf("%s\"%s\":%u", i == 0 ? "{" : ",", names[i], values[i]);
      printf("}\n");
    } else {
      fprintf(stderr, "hooked_launches: unknown: %s", line);
      return 2;
    }
    if (fflush(stdout) != 0) return 1;
  }
  return 0;
}
