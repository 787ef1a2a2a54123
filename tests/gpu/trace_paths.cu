// Twenty functions, path_00 to path_19, each of which launches a kernel that spins for a time of
// its own, in random order from several threads on several streams. What each kernel took it writes
// down itself, by the GPU's own clock.
//
// usage: trace_paths serve IN OUT    by lines of the pipe IN, answers go to OUT:
//                                    "paths N SEED"   N launches of each path
//                                    "times"          ns of each path's kernels, by their own clock

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/trace_program.h"

struct Stamp {
  uint64_t start_ns;
  uint64_t end_ns;
};

struct Order {
  int path = 0;
  cudaStream_t stream = nullptr;
  Stamp* stamp = nullptr;  // of the device
};

namespace {

constexpr int kPaths = 20;
constexpr int kThreads = 4;
constexpr int kStreams = 4;  // of each thread
// Long enough that the 1 to 2 us which CUPTI sees before and after the kernel's own code are less
// than 0.4 %; all different, so that a mix-up of two paths shows.
constexpr uint64_t kShortestNs = 500'000;
constexpr uint64_t kStepNs = 70'000;

__device__ uint64_t read_gpu_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void spin_kernel(uint64_t ns, Stamp* stamp) {
  const uint64_t start = read_gpu_ns();
  uint64_t now = start;
  while (now - start < ns) now = read_gpu_ns();
  *stamp = {start, now};
}

}  // namespace

// The empty instruction keeps the call from being a jump, which would leave no frame.
#define PLANTED_PATH(N)                                                                      \
  extern "C" __attribute__((noinline)) void path_##N(const Order& order) {                   \
    spin_kernel<<<1, 1, 0, order.stream>>>(kShortestNs + order.path * kStepNs, order.stamp); \
    asm volatile("");                                                                        \
  }
PLANTED_PATH(00)
PLANTED_PATH(01)
PLANTED_PATH(02)
PLANTED_PATH(03)
PLANTED_PATH(04)
PLANTED_PATH(05)
PLANTED_PATH(06)
PLANTED_PATH(07)
PLANTED_PATH(08)
PLANTED_PATH(09)
PLANTED_PATH(10)
PLANTED_PATH(11)
PLANTED_PATH(12)
PLANTED_PATH(13)
PLANTED_PATH(14)
PLANTED_PATH(15)
PLANTED_PATH(16)
PLANTED_PATH(17)
PLANTED_PATH(18)
PLANTED_PATH(19)

namespace {

using Path = void (*)(const Order&);
constexpr Path kFunctions[kPaths] = {path_00, path_01, path_02, path_03, path_04, path_05, path_06,
                                     path_07, path_08, path_09, path_10, path_11, path_12, path_13,
                                     path_14, path_15, path_16, path_17, path_18, path_19};

class Program {
 public:
  Program() {
    for (cudaStream_t& stream : streams_) {
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    }
  }

  // Every path as often, in an order of its own each time.
  std::string launch(std::istream& line) {
    long repeats = 0;
    unsigned seed = 0;
    line >> repeats >> seed;
    plan(repeats, seed);
    const uint64_t begin_ns = read_mono_ns();
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, i] {
        for (size_t k = i; k < orders_.size(); k += kThreads)
          kFunctions[orders_[k].path](orders_[k]);
        check(cudaGetLastError(), "launch");
      });
    }
    for (std::thread& thread : threads) thread.join();
    check(cudaDeviceSynchronize(), "synchronize");
    std::ostringstream answer;
    answer << "{\"begin_mono_ns\": " << begin_ns << ", \"end_mono_ns\": " << read_mono_ns()
           << ", \"launches\": " << orders_.size() << "}";
    return answer.str();
  }

  std::string tell_times(std::istream&) {
    std::vector<Stamp> stamps(orders_.size());
    check(cudaMemcpy(stamps.data(), stamps_, stamps.size() * sizeof(Stamp), cudaMemcpyDeviceToHost),
          "copy");
    std::vector<uint64_t> total_ns(kPaths), count(kPaths);
    for (size_t i = 0; i < orders_.size(); ++i) {
      total_ns[orders_[i].path] += stamps[i].end_ns - stamps[i].start_ns;
      ++count[orders_[i].path];
    }
    std::ostringstream answer;
    answer << "{\"paths\": {";
    for (int i = 0; i < kPaths; ++i) {
      answer << (i == 0 ? "" : ", ") << "\"path_" << i / 10 << i % 10 << "\": [" << count[i] << ", "
             << total_ns[i] << "]";
    }
    answer << "}}";
    return answer.str();
  }

 private:
  void plan(long repeats, unsigned seed) {
    std::mt19937 random(seed);
    orders_.clear();
    for (long i = 0; i < repeats * kPaths; ++i)
      orders_.push_back({.path = static_cast<int>(i % kPaths)});
    std::shuffle(orders_.begin(), orders_.end(), random);
    check(cudaFree(stamps_), "memory");
    check(cudaMalloc(&stamps_, orders_.size() * sizeof(Stamp)), "memory");
    for (size_t i = 0; i < orders_.size(); ++i) {
      // A stream belongs to one thread, as in most programs.
      orders_[i].stream = streams_[i % kThreads * kStreams + random() % kStreams];
      orders_[i].stamp = stamps_ + i;
    }
  }

  cudaStream_t streams_[kThreads * kStreams] = {};
  Stamp* stamps_ = nullptr;
  std::vector<Order> orders_;
};

}  // namespace

int main(int count, char** words) {
  if (count != 4 || std::string(words[1]) != "serve") {
    std::fprintf(stderr, "trace_paths: no such use\n");
    return 2;
  }
  Program program;
  std::istringstream warm_up("1 1");
  (void)program.launch(warm_up);
  return serve(words[2], words[3],
               {{"paths", [&](std::istream& line) { return program.launch(line); }},
                {"times", [&](std::istream& line) { return program.tell_times(line); }}});
}
