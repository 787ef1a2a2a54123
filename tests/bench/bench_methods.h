#pragma once

// The ways to probe a function that probe_cost compares.

#include <span>

#include "daemon/base/result.h"
#include "tests/bench/tool_probe.h"

namespace gpuperf::bench {

// A function to probe, in a library that is mapped here.
struct Target {
  const char* name = nullptr;
  int (*function)(int value) = nullptr;
};

struct Method {
  const char* name = nullptr;
  // Puts a probe on entry and return of the target. An error says why this machine cannot.
  Result<Detach> (*attach)(const Target& target) = nullptr;
};

// In the order of the table: without a probe, the floor, ours, then the others.
std::span<const Method> methods();

// Thread CPU time of one call, averaged over `calls`, nanoseconds.
double measure_ns_per_call(const Target& target, int calls);

}  // namespace gpuperf::bench
