// Cases that differ in what is called only.

#include "walk.h"

namespace workload {
namespace {

constexpr uint32_t kMaxSteps = 14;  // a step is up to 6 frames of ours: below the 128 that are kept

}  // namespace

extern "C" {

[[gnu::noipa]] void run_ordinary(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  walk->steps = ordinary_steps();
  walk_all(walk, request, kMaxSteps);
}

[[gnu::noipa]] void run_tail_calls(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  walk->steps = tail_call_steps();
  walk_all(walk, request, kMaxSteps);
}

[[gnu::noipa]] uint64_t descend(Walk* walk) {
  const Frame frame(walk, __func__);
  return take_step(walk) + 1;
}

[[gnu::noipa]] uint64_t descend_with_locals(Walk* walk) {
  const Frame frame(walk, __func__);
  uint64_t numbers[20] = {walk->random};
  asm volatile("" : : "r"(numbers) : "memory");
  return take_step(walk) + numbers[walk->sample % 20];
}

// Up to 430 frames, half of them beyond what is kept.
[[gnu::noipa]] void run_deep_recursion(Walk* walk, Request& request) {
  static constexpr Step kSteps[] = {descend, descend_with_locals};
  constexpr uint32_t kMaxDepth = 430;
  const Frame frame(walk, __func__);
  walk->steps = kSteps;
  walk_all(walk, request, kMaxDepth);
}

}  // extern "C"

std::span<const CaseRow> path_cases() {
  static constexpr CaseRow kCases[] = {
      {"ordinary", run_ordinary},
      {"tail_calls", run_tail_calls},
      {"deep_recursion", run_deep_recursion},
  };
  return kCases;
}

}  // namespace workload
