#include "stack_target.h"

#include <time.h>
#include <unwind.h>

static uint64_t target_ns = 50000;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void set_stack_target_ns(uint64_t duration_ns) { target_ns = duration_ns; }

uint64_t stack_target(uint64_t sample) {
  const uint64_t end_ns = now_ns() + target_ns;
  while (now_ns() < end_ns) {
  }
  return sample;
}

struct own_stack {
  uintptr_t *addresses;
  size_t capacity;
  size_t count;
};

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *argument) {
  struct own_stack *stack = argument;
  int is_interrupted = 0;
  const uintptr_t address = _Unwind_GetIPInfo(context, &is_interrupted);
  if (stack->count == stack->capacity || address == 0) return _URC_END_OF_STACK;
  stack->addresses[stack->count++] = address;
  return _URC_NO_REASON;
}

size_t read_own_stack(uintptr_t *addresses, size_t capacity) {
  struct own_stack stack = {addresses, capacity, 0};
  _Unwind_Backtrace(add_frame, &stack);
  if (stack.count == 0) return 0;
  stack.count -= 1; /* the first is this function */
  for (size_t i = 0; i < stack.count; ++i) addresses[i] = addresses[i + 1];
  return stack.count;
}
