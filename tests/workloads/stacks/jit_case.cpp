// Machine code made at run time, as a just-in-time compiler makes it: in no file, with frame
// pointers, named by /tmp/perf-PID.map only. New functions come while the program runs.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

#include "walk.h"

// libgcc's. NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" void __register_frame(void* rules);

namespace workload {
namespace {

constexpr uint32_t kMaxSteps = 10;
constexpr size_t kCodeBytes = 64ul * 1024;
constexpr size_t kFunctionBytes = 25;  // of each: the truth names a function by its place
constexpr size_t kMaxFunctions = 400;
constexpr uint64_t kSamplesPerFunction = 25;  // then comes a new one

// The table of unwinding rules of one function, as libgcc takes it: a CIE, an FDE and an end mark.
struct UnwindRules {
  uint32_t cie_bytes = 20;
  uint32_t cie_id = 0;
  uint8_t cie[16] = {1,    0,         // version, no augmentation
                     1,    0x78, 16,  // code in bytes, data in -8, return address: column 16
                     0x0c, 7,    8,   // CFA = rsp + 8
                     0x90, 1};        // return address at CFA - 8
  uint32_t fde_bytes = 28;
  uint32_t to_cie_bytes = 28;
  const uint8_t* begin = nullptr;
  uint64_t code_bytes = 0;
  uint8_t fde[8] = {0x41, 0x0e, 16,  // behind push: CFA = rsp + 16,
                    0x86, 2,         // rbp at CFA - 16
                    0x43, 0x0d, 6};  // behind mov: CFA = rbp + 16
  uint32_t end = 0;
};
static_assert(offsetof(UnwindRules, fde_bytes) == 24 && offsetof(UnwindRules, begin) == 32 &&
              offsetof(UnwindRules, end) == 56);

struct JitFunction {
  Step code = nullptr;
  std::string name;
  UnwindRules rules;
};

// The case's one thread uses them.
std::deque<JitFunction> g_functions;
uint8_t* g_code = nullptr;
size_t g_code_used_bytes = 0;
FILE* g_perf_map = nullptr;

std::string get_perf_map_path() { return "/tmp/perf-" + std::to_string(getpid()) + ".map"; }
void remove_perf_map() { unlink(get_perf_map_path().c_str()); }

[[noreturn]] void fail(const char* what) {
  perror(what);
  exit(1);
}

void emit(const void* bytes, size_t count) {
  memcpy(g_code + g_code_used_bytes, bytes, count);
  g_code_used_bytes += count;
}

// push %rbp; mov %rsp,%rbp; sub $frame,%rsp; mov $callee,%rax; call *%rax; leave; ret
void add_function(Step callee) {
  const uint8_t enter[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec};
  const uint8_t load[] = {0x48, 0xb8};
  const uint8_t call_and_leave[] = {0xff, 0xd0, 0xc9, 0xc3};
  static_assert(sizeof enter + sizeof(uint32_t) + sizeof load + sizeof callee +
                    sizeof call_and_leave ==
                kFunctionBytes);
  const auto frame_bytes = static_cast<uint32_t>(16 * (1 + g_functions.size() % 50));
  uint8_t* const begin = g_code + g_code_used_bytes;
  emit(enter, sizeof enter);
  emit(&frame_bytes, sizeof frame_bytes);
  emit(load, sizeof load);
  emit(&callee, sizeof callee);
  emit(call_and_leave, sizeof call_and_leave);

  JitFunction& function = g_functions.emplace_back();  // which stays where it is
  function.name = "jit_" + std::to_string(g_functions.size() - 1);
  memcpy(&function.code, &begin, sizeof begin);
  function.rules.begin = begin;
  function.rules.code_bytes = kFunctionBytes;
  __register_frame(&function.rules);
  fprintf(g_perf_map, "%lx %lx %s\n", reinterpret_cast<unsigned long>(begin),
          static_cast<unsigned long>(function.rules.code_bytes), function.name.c_str());
  fflush(g_perf_map);
}

}  // namespace

extern "C" {

// What the made code calls.
[[gnu::noipa]] uint64_t walk_on(Walk* walk) {
  const Frame frame(walk, __func__);
  return take_step(walk) + 1;
}

[[gnu::noipa]] uint64_t call_jit(Walk* walk) {
  const Frame frame(walk, __func__);
  if (walk->sample / kSamplesPerFunction >= g_functions.size() &&
      g_functions.size() < kMaxFunctions) {
    add_function(walk_on);
  }
  // The newest every other time.
  const size_t choice = next_random(walk) % (2 * g_functions.size());
  const JitFunction& function = g_functions[std::min(choice, g_functions.size() - 1)];
  const Frame jit(walk, function.name.c_str());
  return function.code(walk) + 1;
}

[[gnu::noipa]] void run_jit(Walk* walk, Request& request) {
  const Frame frame(walk, __func__);
  void* const memory = mmap(nullptr, kCodeBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("memory for code");
  g_code = static_cast<uint8_t*>(memory);
  loaded_modules().push_back(
      {.path = "[jit]", .bias = reinterpret_cast<uintptr_t>(memory), .symbols = "[jit]"});
  g_perf_map = fopen(get_perf_map_path().c_str(), "we");
  if (g_perf_map == nullptr) fail(get_perf_map_path().c_str());
  atexit(remove_perf_map);
  for (int i = 0; i < 5; ++i) add_function(walk_on);

  std::vector<Step> steps(ordinary_steps().begin(), ordinary_steps().end());
  steps.insert(steps.end(), steps.size() / 2, call_jit);
  walk->steps = steps;
  walk_all(walk, request, kMaxSteps);
}

}  // extern "C"

std::span<const CaseRow> code_cases() {
  static constexpr CaseRow kCases[] = {{"jit", run_jit}};
  return kCases;
}

}  // namespace workload
