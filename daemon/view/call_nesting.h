#pragma once

#include <cstdint>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/call_path.h"
#include "daemon/view/formats.h"

namespace gpuperf {

// A probed call or a launch call among those of its thread.
struct NestedCall {
  uint32_t call = kNoIndex;    // of the capture's calls; kNoIndex = a launch
  uint32_t launch = kNoIndex;  // likewise; both: the launch call itself is probed
  uint32_t outer = kNoIndex;   // index of the call around it, below this one's
  uint32_t depth = 0;
  uint32_t path = kNoIndex;  // of the table
  uint64_t start_mono_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t self_ns = 0;          // without calls inside
  uint64_t self_off_cpu_ns = 0;  // of it
};

// Every call and every launch with a known duration, by thread, outer ones first. A launch within
// a probed call of the same name is that call, seen twice, and one row. Times are cut where they
// reach out of the call around them, so that the sum of self_ns is the time in outermost calls.
//
// A call without a stack of its own is put on the path of a launch inside it, as far as that
// leads to the call; else inside the call around it.
std::vector<NestedCall> nest_calls(const Capture& capture, PathTable& table);

// Its own time on the CPU or off it: `weight` is one of the two.
inline uint64_t get_self_ns(const NestedCall& call, ViewWeight weight) {
  return weight == ViewWeight::kCpuTime ? call.self_ns - call.self_off_cpu_ns
                                        : call.self_off_cpu_ns;
}

}  // namespace gpuperf
