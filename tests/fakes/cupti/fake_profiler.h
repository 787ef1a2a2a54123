#pragma once

// Other clients of CUPTI, as they behave.
//
// fake_kineto links libcupti, as PyTorch's profiler does; fake_kineto_now is bound at once instead
// of lazily. fake_proton looks its functions up, as Triton's profiler does. Each aborts when a
// buffer comes that it never handed out.

#include <cstdint>

struct FakeProfilerCounts {
  uint64_t kernels = 0;
  uint64_t copies = 0;
  uint64_t sets = 0;
  uint64_t graphs = 0;
  uint64_t calls = 0;
  uint64_t others = 0;
  uint64_t first_error = 0;  // of CUPTI
};

extern "C" {
// `argument`: path of libcupti, for those that open it.
void fake_profiler_start(const char* argument);
void fake_profiler_stop(FakeProfilerCounts* counts);
}
