// Calls busy_tight as fast as it can for --seconds, or with --apart-us of other work after each
// call, all the time or for --busy-seconds and then not for as long, and busy_rare a thousand times
// a second beside it; says, slice by slice, how many tight calls it managed, so that a slowdown and
// its end can be seen. Prints one JSON line:
//   {"program":"busy_loop","pid":71,"start_mono_ns":5,"slice_ms":100,"tight_per_slice":[...],
//    "calls":{"busy_rare":{"calls":5000,"errors":{}},...}}

#include <string>
#include <thread>
#include <vector>

#include "options.h"
#include "truth.h"

using namespace workload;

// Exported, each a frame of its own.
extern "C" {

uint64_t busy_tight(uint64_t index) { return index + 1; }
uint64_t busy_rare(uint64_t index) { return index + 2; }

}  // extern "C"

namespace {

constexpr uint64_t kSliceNs = 100'000'000;
constexpr uint64_t kRarePeriodNs = 1'000'000;

uint64_t call_rarely(uint64_t end_ns) {
  uint64_t calls = 0;
  for (uint64_t due_ns = now_mono_ns(); due_ns < end_ns; due_ns += kRarePeriodNs, ++calls) {
    const uint64_t now_ns = now_mono_ns();
    if (now_ns < due_ns) sleep_ns(due_ns - now_ns);
    (void)busy_rare(calls);
  }
  return calls;
}

void work_until(uint64_t end_ns) {
  while (now_mono_ns() < end_ns) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--seconds", "5"},
                         {"--apart-us", "0"},
                         {"--busy-seconds", "0"},      // 0 = all the time
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  wait_for_file(options.get_text("--wait-for-file"));

  const uint64_t apart_ns = options.get_count("--apart-us") * 1000;
  const uint64_t busy_ns = options.get_count("--busy-seconds") * 1'000'000'000;
  const uint64_t start_ns = now_mono_ns();
  const uint64_t end_ns = start_ns + options.get_count("--seconds") * 1'000'000'000;
  Truth truth;
  std::thread rare([&truth, end_ns] { truth["busy_rare"].calls = call_rarely(end_ns); });
  std::vector<uint64_t> slices;
  uint64_t tight = 0;
  for (uint64_t slice_end_ns = start_ns + kSliceNs; slice_end_ns <= end_ns;
       slice_end_ns += kSliceNs) {
    uint64_t calls = 0;
    if (busy_ns > 0 && (slice_end_ns - kSliceNs - start_ns) / busy_ns % 2 == 1) {
      sleep_ns(kSliceNs);
      slices.push_back(0);
      continue;
    }
    while (now_mono_ns() < slice_end_ns) {
      for (int i = 0; i < (apart_ns > 0 ? 1 : 10); ++i) (void)busy_tight(calls++);
      if (apart_ns > 0) work_until(now_mono_ns() + apart_ns);
    }
    slices.push_back(calls);
    tight += calls;
  }
  rare.join();
  truth["busy_tight"].calls = tight;

  std::string text;
  for (const uint64_t slice : slices) text += (text.empty() ? "" : ",") + std::to_string(slice);
  print_line("{\"program\":\"busy_loop\",\"pid\":" + std::to_string(getpid()) +
             ",\"start_mono_ns\":" + std::to_string(start_ns) +
             ",\"slice_ms\":" + std::to_string(kSliceNs / 1'000'000) + ",\"tight_per_slice\":[" +
             text + "],\"calls\":" + render_truth(truth) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
