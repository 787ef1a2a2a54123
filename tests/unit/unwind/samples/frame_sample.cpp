// Functions that compilers describe in their various ways. Read and loaded by tests, never run.

#include <alloca.h>

#include <stdexcept>

extern "C" {

void frame_sample_outside(void* memory);

int frame_sample_leaf(int value) { return value * 3; }

int frame_sample_calls(int count) {
  char memory[300];
  frame_sample_outside(memory);
  return memory[count];
}

// By bp: its own memory is of a size known only when it runs.
int frame_sample_allocates(int count) {
  char* memory = static_cast<char*>(alloca(static_cast<size_t>(count)));
  frame_sample_outside(memory);
  return memory[0];
}

// By memory at bp: it aligns its stack, and its last arguments lie above what that leaves unknown.
int frame_sample_aligns(int count, int, int, int, int, int, int seventh, int eighth) {
  alignas(64) char aligned[256];
  char* memory = static_cast<char*>(alloca(static_cast<size_t>(count)));
  frame_sample_outside(aligned);
  frame_sample_outside(memory);
  return aligned[seventh] + memory[eighth];
}

int frame_sample_catches(int count) {
  try {
    if (count < 0) throw std::runtime_error("negative");
    frame_sample_outside(&count);
  } catch (const std::exception&) {
    return -1;
  }
  return count;
}

}  // extern "C"
