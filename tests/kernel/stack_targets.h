#pragma once

// Functions that put known frames between a test and the call it watches.

namespace gpuperf {

// What the innermost of them calls.
struct Step {
  void (*run)(void* context) = nullptr;
  void* context = nullptr;
};
using Chain = void (*)(const Step& step);

}  // namespace gpuperf

extern "C" {
void stack_target(void* context);             // the call watched
void stack_jump(void* context);               // leaves by a jump to stack_target
void stack_outer(const gpuperf::Step& step);  // calls stack_inner
void stack_inner(const gpuperf::Step& step);
void stack_recursive(const gpuperf::Step& step);       // 300 frames of itself
void stack_large(const gpuperf::Step& step);           // a frame of 150 KiB
void stack_never_touched(const gpuperf::Step& step);   // likewise, of which it writes nothing
void stack_signal_handler(const gpuperf::Step& step);  // in a handler of SIGUSR1
void stack_signal_stack(const gpuperf::Step& step);    // likewise, on a signal stack
}
