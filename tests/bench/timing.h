#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf::bench {

// Nanoseconds of a clock that is always there, such as CLOCK_MONOTONIC.
inline double read_clock_ns(clockid_t clock) {
  timespec time{};
  (void)clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

// Keeps the calling thread on the CPU that it is on.
inline void pin_here() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(sched_getcpu(), &set);
  (void)sched_setaffinity(0, sizeof set, &set);  // a CPU we are on
}

// `share`: from 0 to 1. There must be a value.
inline double get_percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

// By way, a figure of each round.
using RoundFigures = std::map<std::string, std::vector<double>>;

// `run_round` adds a figure of each way. nullopt: one failed, and was said to.
inline std::optional<RoundFigures> run_rounds(int rounds, Status (*run_round)(RoundFigures&)) {
  RoundFigures samples;
  for (int round = 0; round < rounds; ++round) {
    if (const Status status = run_round(samples); !status.ok()) {
      std::printf("not measured: %s\n", std::string(status.message()).c_str());
      return std::nullopt;
    }
  }
  return samples;
}

}  // namespace gpuperf::bench
