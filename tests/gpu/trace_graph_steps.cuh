#pragma once

// The steps that graphs are captured from: step NN is made by the function site_NN alone, or by
// alt_NN alone. It launches the kernel node_NN; from 20 on it copies, from 22 on it sets NN * 256
// bytes.

#include <algorithm>
#include <random>
#include <vector>

#include "tests/gpu/trace_program.h"

struct Target {
  cudaStream_t stream = nullptr;
  char* from = nullptr;
  char* to = nullptr;
};

constexpr int kKernels = 20;
constexpr int kSteps = 24;
constexpr int kRepeats = 12;  // steps of a graph that were in it before
constexpr size_t kStepBytes = 256;

// The empty instruction keeps the call from being a jump, which would leave no frame; its text
// keeps the compiler from making one function of two that do the same.
#define PLANTED(FUNCTION, ...)                                               \
  extern "C" __attribute__((noinline)) void FUNCTION(const Target& target) { \
    __VA_ARGS__;                                                             \
    asm volatile("# " #FUNCTION);                                            \
  }
#define STEP(N, ...)             \
  PLANTED(site_##N, __VA_ARGS__) \
  PLANTED(alt_##N, __VA_ARGS__)
#define KERNEL_STEP(N)                                         \
  __global__ void node_##N(char* data) { ++data[1##N - 100]; } \
  STEP(N, node_##N<<<1, 1, 0, target.stream>>>(target.to))
#define COPY_STEP(N)                                                             \
  STEP(N, check(cudaMemcpyAsync(target.to, target.from, 1##N % 100 * kStepBytes, \
                                cudaMemcpyDeviceToDevice, target.stream),        \
                "copy"))
#define SET_STEP(N) \
  STEP(N, check(cudaMemsetAsync(target.to, 0, 1##N % 100 * kStepBytes, target.stream), "set"))

#define EACH_KERNEL(DO)                                          \
  DO(00) DO(01) DO(02) DO(03) DO(04) DO(05) DO(06) DO(07) DO(08) \
  DO(09) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) \
  DO(18) DO(19)
#define EACH_STEP(DO) EACH_KERNEL(DO) DO(20) DO(21) DO(22) DO(23)

EACH_KERNEL(KERNEL_STEP)
COPY_STEP(20)
COPY_STEP(21)
SET_STEP(22)
SET_STEP(23)
// Launches beside a capture: the kernel of a step, but no node of any graph.
PLANTED(bystander, node_03<<<1, 1, 0, target.stream>>>(target.to))

using Site = void (*)(const Target&);
#define NAME_SITE(N) site_##N,
#define NAME_ALT(N) alt_##N,
#define NAME_KERNEL(N) reinterpret_cast<void*>(node_##N),
constexpr Site kSites[kSteps] = {EACH_STEP(NAME_SITE)};
constexpr Site kAlts[kSteps] = {EACH_STEP(NAME_ALT)};
void* const kNodes[kKernels] = {EACH_KERNEL(NAME_KERNEL)};

using Steps = std::vector<int>;

// Every step once and some again, in an order that is not the numbers', the same every time.
inline Steps make_steps(unsigned seed) {
  std::mt19937 random(seed);
  Steps steps;
  for (int i = 0; i < kSteps + kRepeats; ++i) {
    steps.push_back(i < kSteps ? i : static_cast<int>(random() % kSteps));
  }
  std::shuffle(steps.begin(), steps.end(), random);
  return steps;
}

// Another kernel in the place of each: what an update may change, where it may not move nodes.
inline Steps rotate_kernels(Steps steps) {
  for (int& step : steps) {
    if (step < kKernels) step = (step + 7) % kKernels;
  }
  return steps;
}

inline void call(const Site* sites, const Steps& steps, const Target& target) {
  for (const int step : steps) sites[step](target);
}
