// Makes slow calls from a known stack: main -> serve_requests -> handle_request -> load_weights ->
// slow_sleep or slow_spin, all exported by the executable. Prints one JSON line:
//   {"program":"slow_calls","pid":71,"duration_ms":20,"stack":["load_weights","handle_request",
//    "serve_requests","main"],"calls":{"slow_sleep":{"calls":5,"errors":{}},...}}

#include <string>

#include "options.h"
#include "truth.h"

using namespace workload;

// Exported, and never inlined or called by a jump: each is a frame of its own.
extern "C" {

// Sleeps `duration_ms` and returns it.
uint64_t slow_sleep(uint64_t duration_ms) {
  sleep_ns(duration_ms * 1'000'000u);
  return duration_ms;
}

// Keeps a CPU busy for `duration_ms` and returns it.
uint64_t slow_spin(uint64_t duration_ms) {
  const uint64_t end_ns = now_mono_ns() + duration_ms * 1'000'000u;
  while (now_mono_ns() < end_ns) {
  }
  return duration_ms;
}

uint64_t load_weights(uint64_t duration_ms, Truth& truth) {
  const uint64_t slept_ms = slow_sleep(duration_ms);
  count_call(truth["slow_sleep"], 0);
  const uint64_t spun_ms = slow_spin(duration_ms);
  count_call(truth["slow_spin"], 0);
  return slept_ms + spun_ms;
}

uint64_t handle_request(uint64_t duration_ms, Truth& truth) {
  return load_weights(duration_ms, truth) + 1;
}

uint64_t serve_requests(uint64_t requests, uint64_t duration_ms, bool vary, Truth& truth) {
  uint64_t sum = 0;
  for (uint64_t request = 0; request < requests; ++request) {
    sum += handle_request(vary ? duration_ms * (1 + request % 3) : duration_ms, truth);
  }
  return sum;
}

}  // extern "C"

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--requests", "5"},
                         {"--duration-ms", "20"},
                         {"--vary", "no"},         // one, two, three, one, two ... times as long
                         {"--wait-for-file", ""},  // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  const uint64_t duration_ms = options.get_count("--duration-ms");
  wait_for_file(options.get_text("--wait-for-file"));

  Truth truth;
  const uint64_t sum =
      serve_requests(options.get_count("--requests"), duration_ms, options.is_set("--vary"), truth);

  print_line("{\"program\":\"slow_calls\",\"pid\":" + std::to_string(getpid()) +
             ",\"duration_ms\":" + std::to_string(duration_ms) + ",\"sum\":" + std::to_string(sum) +
             ",\"stack\":[\"load_weights\",\"handle_request\",\"serve_requests\",\"main\"]" +
             ",\"calls\":" + render_truth(truth) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
