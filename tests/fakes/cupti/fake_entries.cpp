#include "tests/fakes/cupti/fake_entries.h"

#include <cupti_driver_cbid.h>
#include <time.h>

#include <algorithm>

namespace {

thread_local FakeEntryCall t_last;
thread_local uint32_t t_result = 0;
thread_local void (*t_inside)() = nullptr;

void spin(uint64_t microseconds) {
  const auto read_ns = [] {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  };
  for (const uint64_t end_ns = read_ns() + 1'000 * microseconds; read_ns() < end_ns;) {
  }
}

// Called by a workload itself, an entry gives the device nothing to do. A launch takes as many
// microseconds as it asks for bytes of shared memory, and fails without a function.
uint32_t obey(uint32_t entry, size_t count, uint64_t frame,
              const uint64_t (&words)[kFakeArguments]) {
  uint32_t result = 0;
  if (fake_cuda_obey(entry, result)) return result;
  t_last = {.entry = entry, .is_stack_aligned = frame % 16 == 0, .arguments = {}};
  std::copy_n(words, count, t_last.arguments);
  if (t_inside != nullptr) t_inside();
  if (entry != GPUPERF_HOOK_cuLaunchKernel) return t_result;
  spin(static_cast<uint32_t>(words[7]));
  return words[0] == 0 ? 1 : t_result;
}

}  // namespace

extern "C" {

FakeEntryCall fake_entry_last() { return t_last; }

void fake_entry_prepare(uint32_t result, void (*inside)()) {
  t_result = result;
  t_inside = inside;
}

// Probes sit on these: no other code may be merged with or inlined from them.
#define FAKE_ENTRY(name, count)                                                           \
  __attribute__((noinline)) uint32_t name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, \
                                          uint64_t e, uint64_t f, uint64_t g, uint64_t h, \
                                          uint64_t i, uint64_t j, uint64_t k) {           \
    return obey(GPUPERF_HOOK_##name, count,                                               \
                reinterpret_cast<uint64_t>(__builtin_frame_address(0)),                   \
                {a, b, c, d, e, f, g, h, i, j, k});                                       \
  }
GPUPERF_HOOK_ENTRIES(FAKE_ENTRY)
#undef FAKE_ENTRY

const FakeEntryRow kFakeEntries[GPUPERF_HOOK_COUNT] = {
#define FAKE_ROW(name, count) {#name, CUPTI_DRIVER_TRACE_CBID_##name, count, name},
    GPUPERF_HOOK_ENTRIES(FAKE_ROW)
#undef FAKE_ROW
};
}
