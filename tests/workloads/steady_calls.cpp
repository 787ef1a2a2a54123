// Calls count_fast at a steady rate, some every millisecond, until its time is over. Prints one
// JSON line:
//   {"program":"steady_calls","pid":71,"elapsed_ns":...,"calls":{"count_fast":{"calls":25000,...}}}

#include <string>

#include "count_target.h"
#include "options.h"
#include "truth.h"

using namespace workload;

int main(int argc, char** argv) {
  constexpr uint64_t kTickNs = 1'000'000;
  const Options options(argc, argv,
                        {{"--per-second", "25000"},  // in whole thousands
                         {"--seconds", "5"},
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  const uint64_t per_tick = options.get_count("--per-second") / 1000;
  const uint64_t ticks = options.get_count("--seconds") * 1000;
  wait_for_file(options.get_text("--wait-for-file"));

  const uint64_t start_ns = now_mono_ns();
  uint64_t sum = 0;
  for (uint64_t tick = 0; tick < ticks; ++tick) {
    for (uint64_t i = 0; i < per_tick; ++i) sum += count_fast(i, 0);
    const uint64_t due_ns = start_ns + (tick + 1) * kTickNs;
    const uint64_t now_ns = now_mono_ns();
    if (now_ns < due_ns) sleep_ns(due_ns - now_ns);
  }
  volatile uint64_t sink = sum;  // keeps the results in use
  (void)sink;
  Truth truth;
  truth["count_fast"].calls = ticks * per_tick;
  print_line("{\"program\":\"steady_calls\",\"pid\":" + std::to_string(getpid()) +
             ",\"elapsed_ns\":" + std::to_string(now_mono_ns() - start_ns) +
             ",\"calls\":" + render_truth(truth) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
