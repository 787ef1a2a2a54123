// Launches through hooks, told line by line what to do, with an answer in JSON to each:
//   launch COUNT MICROSECONDS STATUS    from launch_here()
//   outer COUNT MICROSECONDS            launches inside outer_call(); its time and theirs
//   graph COUNT
//   flush                               hands over what was counted
//   totals                              of cuLaunchKernel, since the program began
//   semaphores

#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "standin/launch_standin.h"

namespace {

constexpr uintptr_t kFunction = 0x7000;
constexpr uintptr_t kExec = 0x8000;
constexpr uintptr_t kStream = 0x9000;

}  // namespace

extern "C" {

void launch_here(uint32_t microseconds, int status) {
  (void)hooked_launch(reinterpret_cast<void*>(kFunction), 2, 3, 4, 64, 5, 6, microseconds,
                      reinterpret_cast<void*>(kStream), nullptr,
                      reinterpret_cast<void**>(static_cast<intptr_t>(status)));
}

int outer_call(int count, uint32_t microseconds) {
  for (int i = 0; i < count; ++i) launch_here(microseconds, 0);
  return 0;
}
}

int main() {
  char line[256];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    int count = 0, status = 0;
    uint32_t microseconds = 0;
    if (sscanf(line, "launch %d %" SCNu32 " %d", &count, &microseconds, &status) == 3) {
      for (int i = 0; i < count; ++i) launch_here(microseconds, status);
      printf("{}\n");
    } else if (sscanf(line, "outer %d %" SCNu32, &count, &microseconds) == 2) {
      const uint64_t before_ns = get_hooked_totals().total_ns;
      (void)outer_call(count, microseconds);
      printf("{\"launches_ns\":%" PRIu64 "}\n", get_hooked_totals().total_ns - before_ns);
    } else if (sscanf(line, "graph %d", &count) == 1) {
      for (int i = 0; i < count; ++i) {
        (void)hooked_graph_launch(reinterpret_cast<void*>(kExec), nullptr);
      }
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
    } else if (strcmp(line, "semaphores\n") == 0) {
      unsigned values[6];
      read_semaphores(values);
      printf("{\"calls\":%u,\"slow\":%u,\"launch\":%u,\"thread\":%u,\"launches\":%u,\"each\":%u}\n",
             values[0], values[1], values[2], values[3], values[4], values[5]);
    } else {
      fprintf(stderr, "hooked_launches: unknown: %s", line);
      return 2;
    }
    if (fflush(stdout) != 0) return 1;
  }
  return 0;
}
