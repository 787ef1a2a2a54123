// What a probe adds to a call, by mechanism and by where it sits, interleaved in one run: read the
// ratios.
//
// usage: probe_cost [ROUNDS]     root; prints the median of the rounds, ns of the calling thread's
// CPU time per call, beside the function without a probe.

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "daemon/probe/attacher.h"
#include "daemon/probe/placement.h"
#include "daemon/probe/self_test.h"
#include "tests/kernel/probe_targets.h"

namespace gpuperf {
namespace {

constexpr int kCalls = 200'000;

double measure_ns_per_call() {
  const auto now_ns = [] {
    timespec time{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // cannot fail for our own thread
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  };
  const double start_ns = now_ns();
  for (int i = 0; i < kCalls; ++i) (void)target_landing_pad(0, i);
  return (now_ns() - start_ns) / kCalls;
}

Result<double> measure_probed(Mechanism mechanism, uint64_t offset_bytes, bool timed) {
  ASSIGN_OR_RETURN(const auto programs, Programs::load(mechanism, {.functions = 1, .cells = 16}));
  programs->set_function({.id = 0, .status = StatusKind::kCudaRuntime}, false);
  const Fd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  Attacher attacher(*programs);
  const ProbePoint point{.function_id = 0, .offset_bytes = offset_bytes, .timed = timed};
  const auto outcome = attacher.attach({.fd = self.get(), .name = "self"}, {&point, 1});
  RETURN_IF_ERROR(outcome[0].status);
  return measure_ns_per_call();
}

int run(int rounds) {
  const auto start = find_own_offset(reinterpret_cast<const void*>(&target_landing_pad));
  if (!start.ok()) return 1;
  const Fd self(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const uint64_t slid = place_probe(self.get(), *start);
  std::map<std::string, std::vector<double>> figures;
  for (int round = 0; round < rounds; ++round) {
    figures["0 no probe"].push_back(measure_ns_per_call());
    for (const Mechanism mechanism : {Mechanism::kSession, Mechanism::kMulti}) {
      const std::string name(get_mechanism_name(mechanism));
      for (const auto& [where, offset] :
           {std::pair{"on endbr64", *start}, {"behind it, on push", slid}}) {
        for (const bool timed : {true, false}) {
          const auto cost = measure_probed(mechanism, offset, timed);
          if (!cost.ok()) {
            std::fprintf(stderr, "%s: %s\n", name.c_str(), cost.status().ToString().c_str());
            return 1;
          }
          figures[name + (timed ? ", entry and return, " : ", entry only, ") + where].push_back(
              *cost);
        }
      }
    }
  }
  for (auto& [name, values] : figures) {
    std::ranges::sort(values);
    std::printf("%-52s %8.1f ns (%.1f to %.1f)\n", name.c_str(), values[values.size() / 2],
                values.front(), values.back());
  }
  return 0;
}

}  // namespace
}  // namespace gpuperf

int main(int argc, char** argv) { return gpuperf::run(argc > 1 ? std::atoi(argv[1]) : 5); }
