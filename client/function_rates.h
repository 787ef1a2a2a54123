#pragma once

// What each function did between two looks at the daemon's totals.

#include <cstdint>
#include <string>
#include <vector>

#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// The totals of every function at one moment, with buckets.
struct FunctionTotalsSample {
  uint64_t taken_mono_ns = 0;  // by the daemon: the moment the totals show
  uint64_t asked_mono_ns = 0;  // by our clock: when we asked
  std::vector<v1::FunctionStats> functions;
};

// One function over an interval.
struct FunctionRate {
  std::string category;
  std::string function;
  uint32_t pid = 0;  // of samples per process; 0 = summed
  std::string comm;
  double time_ratio = 0;  // time inside it per time: 1.85 = on average 1.85 threads
  double calls_per_second = 0;
  double errors_per_second = 0;
  double bytes_per_second = 0;
  uint64_t avg_ns = 0;  // of calls that completed in the interval; 0 = none
  uint64_t p99_ns = 0;  // likewise, within 3.2 %
  uint64_t in_flight = 0;
  uint64_t oldest_in_flight_ns = 0;
  double coverage = 1;  // see FunctionStats.coverage
};

struct FunctionRates {
  double interval_seconds = 0;
  std::vector<FunctionRate> functions;  // most time first; only those with calls or calls in flight
};

FunctionRates compute_rates(const FunctionTotalsSample& before, const FunctionTotalsSample& now);

}  // namespace gpuperf::client
