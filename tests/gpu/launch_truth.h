#pragma once

// Who launched what, by CUPTI's callbacks: the truth that captures are compared with. A library
// that is loaded into a workload. It needs CUPTI's only place for a subscriber, and takes it by
// addresses read from libcupti's file: the injected library beside it must not notice, or it would
// yield.
//
// The file that truth_dump writes: "GPTRUTH1"; the numbers of calls, of calls there was no room for
// and of names, 8 bytes each; the calls of each thread in order; the names: hash, 8 bytes, length,
// 4 bytes, and the text.

#include <cstdint>

// One call that launches a kernel or a graph.
struct LaunchTruth {
  uint64_t start_mono_ns;
  uint64_t name_hash;  // of the kernel's name, as the binary has it; 0 = not told
  uint32_t correlation_id;
  uint32_t outer_correlation_id;  // of the launching call around this one; 0 = it is the outermost
  uint32_t tid;
  int32_t marker;  // the thread's own number when it called
  uint32_t callback_id;
  int32_t result;  // what the call returned; -1 = it never did
  uint8_t domain;  // CUPTI's: 1 = driver, 2 = runtime
  uint8_t is_graph;
  uint8_t padding[6];
};
static_assert(sizeof(LaunchTruth) == 48);

extern "C" {
// Call on the main thread, after cuInit and before any other thread launches. Null, or what is
// wrong.
const char* truth_start(const char* cupti_library);
// From now on the calls of this thread carry this number; 0 in the beginning.
void truth_mark(int marker);
// Calls from `start_mono_ns` on are written, once nothing launches. How many; negative: not
// written.
long truth_dump(const char* path, uint64_t start_mono_ns);
}
