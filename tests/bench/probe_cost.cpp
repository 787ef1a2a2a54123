// What a probe on entry and return adds to a call: ours, the least BPF can cost at the same
// address, ours without placement, and what others use, in one run, interleaved: read the ratios.
//
// usage: probe_cost [ROUNDS]     root; a round takes half a minute with every tool installed
// Prints a table of the time added to a call, the aims with what came of them, and a JSON line. The
// figure is the 15th percentile of the rounds: on a shared machine the median flips between its
// speeds.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/bench_methods.h"
#include "tests/bench/bench_targets.h"
#include "tests/bench/timing.h"

namespace gpuperf::bench {
namespace {

constexpr int kCalls = 20'000;
constexpr int kWarmUpCalls = 500;
constexpr Target kTargets[] = {{"bench_push", bench_push},
                               {"bench_endbr64", bench_endbr64},
                               {"bench_sub", bench_sub},
                               {"bench_mov", bench_mov},
                               {"bench_test", bench_test}};

using Samples =
    std::map<std::pair<std::string, std::string>, std::vector<double>>;  // target, method

class Report {
 public:
  explicit Report(Samples samples) : samples_(std::move(samples)) {}

  bool has(const std::string& target, const std::string& method) const {
    return samples_.contains({target, method});
  }
  // Time added to a call, nanoseconds.
  double get_added_ns(const std::string& target, const std::string& method,
                      double share = 0.15) const {
    return get_percentile(samples_.at({target, method}), share) -
           get_percentile(samples_.at({target, "bare"}), share);
  }

  void print_table() const {
    std::printf("%-16s", "added ns/call");
    for (const Method& method : methods()) std::printf("%16s", method.name);
    std::printf("\n");
    for (const Target& target : kTargets) {
      std::printf("%-16s", target.name);
      for (const Method& method : methods()) {
        if (!has(target.name, method.name)) {
          std::printf("%16s", "-");
        } else if (method.name == std::string("bare")) {
          std::printf("%13.1f ns", get_percentile(samples_.at({target.name, "bare"}), 0.15));
        } else {
          std::printf("%16.0f", get_added_ns(target.name, method.name));
        }
      }
      std::printf("\n");
    }
  }

  // Never fails by a time: a shared machine has its own.
  void print_aim(const char* target, const char* other, double aim) const {
    if (!has(target, "ours") || !has(target, other)) {
      std::printf("%-16s ours / %-14s not measured\n", target, other);
      return;
    }
    const double ratio = get_added_ns(target, "ours") / get_added_ns(target, other);
    std::printf("%-16s ours / %-14s %.2f  (aim %.2f: %s)\n", target, other, ratio, aim,
                ratio <= aim ? "met" : "not met");
  }

  void print_json(int rounds) const {
    std::printf("{\"bench\":\"probe_cost\",\"rounds\":%d,\"added_ns\":{", rounds);
    const char* comma = "";
    for (const auto& [key, values] : samples_) {
      if (key.second == "bare") continue;
      std::printf("%s\"%s/%s\":{\"p15\":%.1f,\"median\":%.1f}", comma, key.first.c_str(),
                  key.second.c_str(), get_added_ns(key.first, key.second),
                  get_added_ns(key.first, key.second, 0.5));
      comma = ",";
    }
    std::printf("}}\n");
  }

 private:
  const Samples samples_;
};

void run_round(Samples& samples, std::map<std::string, std::string>& failures) {
  for (const Target& target : kTargets) {
    for (const Method& method : methods()) {
      if (failures.contains(method.name)) continue;
      const Result<Detach> detach = method.attach(target);
      if (!detach.ok()) {
        failures[method.name] = detach.status().ToString();
        continue;
      }
      (void)measure_ns_per_call(target, kWarmUpCalls);
      samples[{target.name, method.name}].push_back(measure_ns_per_call(target, kCalls));
      (*detach)();
    }
  }
}

int run(int rounds) {
  Samples samples;
  std::map<std::string, std::string> failures;  // of methods that this machine cannot do
  for (int round = 0; round < rounds; ++round) run_round(samples, failures);
  for (const auto& [method, reason] : failures) {
    std::printf("%s: not measured: %s\n", method.c_str(), reason.c_str());
  }
  if (failures.contains("floor") || failures.contains("ours")) return 1;
  const Report report(std::move(samples));
  report.print_table();
  for (const Target& target : kTargets) report.print_aim(target.name, "floor", 1.15);
  for (const char* target : {"bench_endbr64", "bench_sub", "bench_mov"}) {
    report.print_aim(target, "bpftrace", 0.35);
  }
  report.print_aim("bench_push", "bpftrace", 0.85);
  report.print_aim("bench_push", "bcc", 1);
  report.print_aim("bench_push", "libbpf_tools", 1);
  report.print_json(rounds);
  return 0;
}

}  // namespace
}  // namespace gpuperf::bench

int main(int argc, char** argv) { return gpuperf::bench::run(argc > 1 ? std::atoi(argv[1]) : 9); }
