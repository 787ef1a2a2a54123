// Eight threads that launch on four streams each, every launch through a function named after its
// thread: thread_3_even, thread_3_odd.
//
// usage: trace_threads serve IN OUT    by lines of the pipe IN, answers go to OUT:
//                                      "threads N FILE"   N launches a thread; their truth to FILE
//        trace_threads run N           the same without orders; prints one line of JSON

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/trace_program.h"

namespace {

constexpr int kThreads = 8;
constexpr int kStreams = 4;
Truth g_truth;

__global__ void even_kernel(int* place) { *place += 2; }
__global__ void odd_kernel(int* place) { *place += 1; }

}  // namespace

struct Target {
  cudaStream_t stream = nullptr;
  int* place = nullptr;
};

// Exported, so that the name in a stack is this one. The empty instruction keeps the call from
// being a jump, which would leave no frame.
#define THREAD_PATHS(N)                                                               \
  extern "C" __attribute__((noinline)) void thread_##N##_even(const Target& target) { \
    g_truth.mark(2 * N + 1);                                                          \
    even_kernel<<<1, 1, 0, target.stream>>>(target.place);                            \
    asm volatile("");                                                                 \
  }                                                                                   \
  extern "C" __attribute__((noinline)) void thread_##N##_odd(const Target& target) {  \
    g_truth.mark(2 * N + 2);                                                          \
    odd_kernel<<<1, 1, 0, target.stream>>>(target.place);                             \
    asm volatile("");                                                                 \
  }
THREAD_PATHS(0)
THREAD_PATHS(1)
THREAD_PATHS(2)
THREAD_PATHS(3)
THREAD_PATHS(4)
THREAD_PATHS(5)
THREAD_PATHS(6)
THREAD_PATHS(7)

namespace {

using Path = void (*)(const Target&);
constexpr Path kPaths[kThreads][2] = {{thread_0_even, thread_0_odd}, {thread_1_even, thread_1_odd},
                                      {thread_2_even, thread_2_odd}, {thread_3_even, thread_3_odd},
                                      {thread_4_even, thread_4_odd}, {thread_5_even, thread_5_odd},
                                      {thread_6_even, thread_6_odd}, {thread_7_even, thread_7_odd}};

std::array<std::array<Target, kStreams>, kThreads> g_targets;

void make_targets() {
  for (auto& targets : g_targets) {
    for (Target& target : targets) {
      check(cudaStreamCreateWithFlags(&target.stream, cudaStreamNonBlocking), "stream");
      check(cudaMalloc(&target.place, sizeof(int)), "memory");
    }
  }
}

void launch_on_thread(int thread, long count) {
  for (long i = 0; i < count; ++i) {
    kPaths[thread][i % 2](g_targets[thread][(i / 2) % kStreams]);
  }
  check(cudaGetLastError(), "launch");
}

std::string launch_on_threads(std::istream& line) {
  long count = 0;
  std::string path;
  line >> count >> path;
  const uint64_t begin_ns = read_mono_ns();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(launch_on_thread, i, count);
  for (std::thread& thread : threads) thread.join();
  check(cudaDeviceSynchronize(), "synchronize");
  const uint64_t end_ns = read_mono_ns();
  const long written = path.empty() ? 0 : g_truth.dump(path, begin_ns);
  std::ostringstream answer;
  answer << "{\"begin_mono_ns\": " << begin_ns << ", \"end_mono_ns\": " << end_ns
         << ", \"launches\": " << kThreads * count << ", \"truth_calls\": " << written << "}";
  return answer.str();
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  if ((what != "serve" || count != 4) && (what != "run" || count != 3)) {
    std::fprintf(stderr, "trace_threads: no such use\n");
    return 2;
  }
  make_targets();
  g_truth.start();
  if (what == "serve") {
    std::istringstream warm_up("8");
    (void)launch_on_threads(warm_up);
    return serve(words[2], words[3], {{"threads", launch_on_threads}});
  }
  std::istringstream line(words[2]);
  std::printf("%s\n", launch_on_threads(line).c_str());
  return 0;
}
