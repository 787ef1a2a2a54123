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
  uint64_t (*go_down_changing)(uint64_t depth, uint64_t changing, uint64_t calls) = nullptr;
  uint64_t (*go_down_ways)(uint64_t depth, uint64_t apart, uint64_t touched_bytes,
                           uint64_t calls) = nullptr;
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
  uint64_t stacks = 2;  // different ones, at most, in as many calls
  // CPU time of the thread over so many calls, all of them, nanoseconds.
  std::function<double(uint64_t calls)> run_ns;
};

// Of a thread of this process: 8, 32, 64 and 120 frames, of code without frame pointers and of code
// with them, and of the former stacks whose innermost 10, or nearly all, differ from call to call.
Result<std::vector<StackWorkload>> make_own_workloads(const std::array<StackLibrary, 2>& libraries);
// Of a Python process: 5, 20 and 40 frames of Python, of which two of three are of the same
// functions, 40 of which each is of a function of its own, and 30 with 100 native ones. It ends
// with the workloads. Errors: what python3 said, or that it cannot be run.
Result<std::vector<StackWorkload>> make_python_workloads(const StackLibrary& library);

// 64 ways of 40 frames inside of common ones, 100 in all, of 1,024 functions and of 2,560; without
// Python and inside of 20 frames of it; with the caches as they are, and after 8 MiB were touched.
Result<std::vector<StackWorkload>> make_way_workloads(const StackLibrary& library);

// Of the calling thread.
double get_thread_cpu_ns();

}  // namespace gpuperf::bench
