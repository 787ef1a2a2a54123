#pragma once

// A walk: a random chain of calls through functions whose frames differ as much as a compiler can
// make them differ, with stack_target at its end. Every function on the way writes its own name on
// a shadow stack, so the program knows its stack without reading it. Each sample prints a line:
//   {"sample":7,"pid":71,"tid":71,"frames":["small_frame","walk_once","walk_all",...,"main"],
//    "addresses":[94..,..],"start":[140..,..],
//    "modules":[{"path":"/b/stack_cases","bias":94..,"symbols":"/b/stack_cases"}]}
// frames: the program's own functions, the caller of stack_target first. addresses: of every frame,
// the C library's too, by libgcc. start: those of the frames around the outermost of ours. bias:
// address in memory - address in the file's symbols.
//
// Thread: a walk belongs to the one thread that takes it, its signal handlers included.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stack_target.h"

namespace workload {

struct Walk;
using Step = uint64_t (*)(Walk* walk);

inline constexpr size_t kMaxFrames = 640;      // deep_recursion goes through 430 functions
inline constexpr size_t kMaxStartFrames = 16;  // Rust's are the most, 9

struct Walk {
  uint64_t sample = 0;
  uint64_t random = 1;  // state of the generator, never 0
  uint32_t steps_left = 0;
  std::span<const Step> steps;    // what a step may call
  Step at_end = nullptr;          // called in place of stack_target after the last step
  Step back = nullptr;            // for code outside of the program: on with the walk
  const char* names[kMaxFrames];  // the shadow stack, outermost first
  size_t depth = 0;
  uintptr_t start[kMaxStartFrames];  // frames around the outermost function of ours
  size_t start_count = 0;
};

// One entry of the shadow stack, from a function's entry to its exit.
class Frame {
 public:
  Frame(Walk* walk, const char* name) : walk_(walk), depth_(walk->depth) {
    walk->names[walk->depth++] = name;
  }
  ~Frame() { walk_->depth = depth_; }  // exceptions leave frames behind that have no Frame
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  Walk* walk_;
  size_t depth_;
};

inline uint64_t next_random(Walk* walk) {  // xorshift64
  walk->random ^= walk->random << 13;
  walk->random ^= walk->random >> 7;
  walk->random ^= walk->random << 17;
  return walk->random >> 11;
}

// Prints the line of this sample.
void print_own_stack(const Walk* walk);

// Prints, and makes the probed call from the function that this is inlined into.
[[gnu::always_inline]] inline uint64_t take_sample(Walk* walk) {
  print_own_stack(walk);
  return stack_target(walk->sample);
}

// The next call of the walk, from the function that this is inlined into.
[[gnu::always_inline]] inline uint64_t take_step(Walk* walk) {
  if (walk->steps_left == 0) {
    return walk->at_end != nullptr ? walk->at_end(walk) : take_sample(walk);
  }
  walk->steps_left -= 1;
  return walk->steps[next_random(walk) % walk->steps.size()](walk);
}

// Functions of every shape, ordinary calls only.
std::span<const Step> ordinary_steps();
// Those that end in a jump; between them the ordinary ones.
std::span<const Step> tail_call_steps();

// A file whose functions are on the stack: where it is loaded, and which file has its symbols.
struct Module {
  std::string path;
  uintptr_t bias = 0;
  std::string symbols;
};
// The program's own comes first. Changed between walks only.
std::vector<Module>& loaded_modules();

// What a case is asked for.
struct Request {
  uint64_t last_sample = 0;
  uint64_t pause_ns = 0;
  uint64_t target_ns = 0;
  uint64_t seed = 1;
  uint64_t threads = 1;
  std::vector<std::string> arguments;  // of the case: files
  std::string linger_path;
  std::string reported_path;  // of a file with the last sample of which the stack was reported
  std::atomic<uint64_t> next_sample = 1;
};

// Notes in `walk` which frames are around the caller, the outermost function of ours.
void note_start(Walk* walk);
// Takes the next sample's number, waits for its time and begins its walk of up to `max_steps`.
// False when all samples are taken.
bool begin_walk(Walk* walk, Request& request, uint32_t max_steps);

// One thread's main part: walks until all samples are taken.
extern "C" void walk_all(Walk* walk, Request& request, uint32_t max_steps);

struct CaseRow {
  const char* name;
  // `walk` holds the frame of main.
  void (*run)(Walk* walk, Request& request);
};
std::span<const CaseRow> path_cases();
std::span<const CaseRow> sharing_cases();
std::span<const CaseRow> signal_cases();
std::span<const CaseRow> process_cases();
std::span<const CaseRow> code_cases();    // jit
std::span<const CaseRow> plugin_cases();  // not in static programs

}  // namespace workload
