// Calls stack_depth_target from a given depth as often as it is told, to measure what a probe with
// a stack costs: the same program is built with and without frame pointers. Prints one JSON line:
//   {"program":"stack_depth","pid":71,"depth":32,"calls":1000000,"ns_per_call":1834.2}

#include <algorithm>
#include <string>

#include "options.h"
#include "truth.h"

using namespace workload;

extern "C" {

// The probed function. Does nothing: what it takes is the probe's.
[[gnu::noipa]] uint64_t stack_depth_target(uint64_t index) { return index; }

[[gnu::noipa]] uint64_t call_target(uint64_t calls) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < calls; ++i) sum += stack_depth_target(i);
  return sum;
}

// As many frames as `depth`, each of 80 bytes or so. What comes after the call keeps it a call.
[[gnu::noipa]] uint64_t go_down(uint64_t depth, uint64_t calls) {
  uint64_t numbers[4] = {depth};
  asm volatile("" : : "r"(numbers) : "memory");
  return (depth <= 1 ? call_target(calls) : go_down(depth - 1, calls)) + numbers[depth % 4];
}

}  // extern "C"

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--depth", "32"},  // of frames of ours: main, go_down and call_target
                         {"--calls", "1000000"},
                         {"--rounds", "5"},          // of which the fastest counts
                         {"--wait-for-file", ""}});  // begin once it exists
  const uint64_t depth = std::max<uint64_t>(options.get_count("--depth"), 3);
  const uint64_t calls = options.get_count("--calls");
  wait_for_file(options.get_text("--wait-for-file"));

  uint64_t best_ns = UINT64_MAX;
  for (uint64_t round = 0; round < options.get_count("--rounds"); ++round) {
    const uint64_t start_ns = now_mono_ns();
    (void)go_down(depth - 2, calls);
    best_ns = std::min(best_ns, now_mono_ns() - start_ns);
  }
  char number[32];
  snprintf(number, sizeof number, "%.1f",
           static_cast<double>(best_ns) / static_cast<double>(std::max<uint64_t>(calls, 1)));
  print_line("{\"program\":\"stack_depth\",\"pid\":" + std::to_string(getpid()) +
             ",\"depth\":" + std::to_string(depth) + ",\"calls\":" + std::to_string(calls) +
             ",\"ns_per_call\":" + std::string(number) + "}");
  return 0;
}
