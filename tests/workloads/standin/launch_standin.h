/* What stands for libcuda.so.1 and for libgpuperf_injector.so in tests of launch hooks. C and C++.
 */
#pragma once

#include <stdint.h>

/* cuLaunchKernel(); here `shared_bytes` is how long it takes, microseconds, `parameters` the
 * function that takes so long, null = it spins, and `extra` what it returns. */
#define LAUNCH_PARAMETERS                                                                         \
  void *function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x,            \
      uint32_t block_y, uint32_t block_z, uint32_t shared_bytes, void *stream, void **parameters, \
      void **extra
#define LAUNCH_ARGUMENTS                                                                         \
  function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, \
      extra

#ifdef __cplusplus
extern "C" {
#endif
int cuLaunchKernel(LAUNCH_PARAMETERS);
int cuGraphLaunch(void* exec, void* stream);

/* The hooks, as the caller meets them. */
int hooked_launch(LAUNCH_PARAMETERS);
int hooked_graph_launch(void* exec, void* stream);

struct hooked_totals {
  uint64_t calls;
  uint64_t traps; /* calls beside these, which went through the probe */
  uint64_t errors;
  uint64_t total_ns;
  uint64_t min_ns;
  uint64_t max_ns;
};
/* Since the program began; of cuLaunchKernel. */
struct hooked_totals get_hooked_totals(void);
/* Which calls are noted as slow. A virtual machine's tick alone takes longer than the library's
 * GPUPERF_NOTED_SLOW_NS. */
void set_noted_slow_ns(uint64_t noted_slow_ns);
/* As the library's thread does from time to time: hands over what was counted since. */
void flush_hooked_calls(void);
/* count, calls, slow, launch, thread, launches, each. */
void read_semaphores(unsigned values[7]);
#ifdef __cplusplus
}
#endif
