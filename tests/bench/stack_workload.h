#pragma once

// Threads that call a probed function from a stack of known depth.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/model/function.h"

namespace gpuperf::bench {

// The two builds of stack_targets.cpp, mapped here.
struct StackLibrary {
  bool has_frame_pointers = false;
  std::string path;
  uint64_t target_offset_bytes = 0;
  uint64_t (*go_down)(uint64_t depth, uint64_t calls) = nullptr;
};

// Where the running program's file lies, and the bench's libraries with it.
std::string get_own_folder();
Result<std::array<StackLibrary, 2>> load_stack_libraries();

struct StackWorkload {
  std::string name;
  ProcessKey process;
  bool has_room_above = false;  // so that the largest copy can be read
  uint64_t frames = 0;          // from the probed function's caller on: what a complete stack has
  uint64_t python_frames = 0;
  // CPU time of the thread over so many calls, all of them, nanoseconds.
  std::function<double(uint64_t calls)> run_ns;
};

// Of a thread of this process: 8, 32, 64 and 120 frames, of code without frame pointers and of code
// with them.
Result<std::vector<StackWorkload>> make_own_workloads(const std::array<StackLibrary, 2>& libraries);
// Of a Python process: 5 and 25 frames of Python. It ends with the workloads. Errors: what python3
// said, or that it cannot be run.
Result<std::vector<StackWorkload>> make_python_workloads(const StackLibrary& library);

// Of the calling thread.
double get_thread_cpu_ns();

}  // namespace gpuperf::bench
