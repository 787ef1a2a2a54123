#pragma once

// Functions that put known frames between a test and the call it watches.

namespace gpuperf {

// What the innermost of them calls.
struct WalkStep {
  void (*run)(void* context) = nullptr;
  void* context = nullptr;
};
using Chain = void (*)(const WalkStep& step);

}  // namespace gpuperf

extern "C" {
void stack_target(void* context);                 // the call watched
void stack_jump(void* context);                   // leaves by a jump to stack_target
void stack_outer(const gpuperf::WalkStep& step);  // calls stack_inner
void stack_inner(const gpuperf::WalkStep& step);
void stack_recursive(const gpuperf::WalkStep& step);       // 300 frames of itself
void stack_large(const gpuperf::WalkStep& step);           // a frame of 150 KiB
void stack_never_touched(const gpuperf::WalkStep& step);   // likewise, of which it writes nothing
void stack_signal_handler(const gpuperf::WalkStep& step);  // in a handler of SIGUSR1
void stack_signal_stack(const gpuperf::WalkStep& step);    // likewise, on a signal stack
}
