// A library with aliases, a thunk, overloads and functions that an exception may pass. Its code is
// not called.

namespace sample {
__attribute__((noinline)) int overloaded(int value) { return value * 3; }
__attribute__((noinline)) int overloaded(long value) { return static_cast<int>(value * 5); }
__attribute__((noinline)) int throws(int value) {
  if (value > 3) throw value;
  return value + 1;
}
}  // namespace sample

extern "C" {
__attribute__((noinline)) int sample_first(int value) { return value * 7 + 1; }
int sample_second(int value) __attribute__((alias("sample_first")));
// Nothing but a jump to sample_first.
asm(".text\n"
    ".globl sample_thunk\n"
    ".type sample_thunk, @function\n"
    "sample_thunk:\n"
    "  jmp .Lsample_first\n"
    ".size sample_thunk, . - sample_thunk\n"
    ".set .Lsample_first, sample_first\n");
}
