// Loads of known size for the check of hardware counters (gpm_check.py).
//
// usage: gpm_load KIND DUTY SECONDS [BLOCKS THREADS]
//   KIND: spin (BLOCKS of THREADS that only wait) | fp32, fp64, fp16 (multiply-adds on every SM)
//         | copy (within device memory) | receive, send (copies from and to the host)
//   DUTY: share of every 20 ms in which the GPU works, 0 to 1
// Prints a JSON object with what the GPU did, by its own clocks and events.

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr double kPeriodNs = 20e6;
constexpr double kUnitNs = 1e6;  // one launch; copies take what they take
constexpr size_t kDeviceCopyBytes = size_t{1} << 30;
constexpr size_t kHostCopyBytes = size_t{16} << 20;
constexpr int kChains = 8;        // independent multiply-adds of a thread: they hide the latency
constexpr int kFmaThreads = 1024;  // one block a SM: of two, the older one runs first

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpm_load: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

int64_t read_mono_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

__device__ uint64_t read_gpu_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void spin(uint64_t duration_ns) {
  const uint64_t end = read_gpu_ns() + duration_ns;
  while (read_gpu_ns() < end) __nanosleep(1'000);
}

template <typename Number>
__device__ Number multiply_add(Number a, Number b, Number c) {
  return a * b + c;
}
template <>
__device__ __half2 multiply_add(__half2 a, __half2 b, __half2 c) {
  return __hfma2(a, b, c);
}

// `cycles`: of the first block until its last thread is done, added up over launches.
template <typename Number>
__global__ void multiply(int rounds, Number factor, Number* out, unsigned long long* cycles) {
  Number values[kChains];
  for (Number& value : values) value = factor;
  const long long begin = clock64();
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int step = 0; step < 16; ++step) {
#pragma unroll
      for (Number& value : values) value = multiply_add(value, factor, factor);
    }
  }
  __syncthreads();
  const long long end = clock64();
  if (blockIdx.x == 0 && threadIdx.x == 0) *cycles += end - begin;
  Number sum = values[0];
  for (const Number& value : values) sum = multiply_add(sum, factor, value);
  if (rounds < 0) out[threadIdx.x] = sum;  // never: keeps the work
}

struct Load {
  std::string kind;
  double duty = 1;
  int blocks = 0;
  int threads = 0;
  int sms = 0;
  void* device[2] = {};
  void* host = nullptr;
  unsigned long long* cycles = nullptr;
  int rounds = 2'000;

  bool is_fma() const { return kind == "fp32" || kind == "fp64" || kind == "fp16"; }
  size_t bytes() const {
    if (kind == "copy") return kDeviceCopyBytes;
    return kind == "receive" || kind == "send" ? kHostCopyBytes : 0;
  }
  void launch() const {
    if (kind == "spin") return spin<<<blocks, threads>>>(static_cast<uint64_t>(kUnitNs));
    if (kind == "fp32") {
      return multiply<float><<<sms, kFmaThreads>>>(rounds, 0.999f, static_cast<float*>(device[0]), cycles);
    }
    if (kind == "fp64") {
      return multiply<double><<<sms, kFmaThreads>>>(rounds, 0.999, static_cast<double*>(device[0]), cycles);
    }
    if (kind == "fp16") {
      return multiply<__half2><<<sms, kFmaThreads>>>(
          rounds, __float2half2_rn(0.9f), static_cast<__half2*>(device[0]), cycles);
    }
    void* to = kind == "send" ? host : device[0];
    void* from = kind == "receive" ? host : device[1];
    check(cudaMemcpyAsync(to, from, bytes(), cudaMemcpyDefault), "cudaMemcpyAsync");
  }
};

// How long one launch takes, ns.
double measure_unit_ns(const Load& load, cudaEvent_t begin, cudaEvent_t end) {
  float ms = 0;
  for (int i = 0; i < 3; ++i) {  // the first loads the code
    check(cudaEventRecord(begin), "cudaEventRecord");
    load.launch();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
  }
  return ms * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: gpm_load KIND DUTY SECONDS [BLOCKS THREADS]\n");
    return 2;
  }
  Load load{.kind = argv[1], .duty = std::atof(argv[2])};
  if (argc > 5) {
    load.blocks = std::atoi(argv[4]);
    load.threads = std::atoi(argv[5]);
  }
  check(cudaDeviceGetAttribute(&load.sms, cudaDevAttrMultiProcessorCount, 0), "attribute");
  for (void*& buffer : load.device) check(cudaMalloc(&buffer, kDeviceCopyBytes), "cudaMalloc");
  check(cudaMallocHost(&load.host, kHostCopyBytes), "cudaMallocHost");
  check(cudaMallocManaged(&load.cycles, sizeof *load.cycles), "cudaMallocManaged");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  double unit_ns = measure_unit_ns(load, begin, end);
  if (load.is_fma()) {
    load.rounds = std::max(1, static_cast<int>(load.rounds * kUnitNs / unit_ns));
    unit_ns = measure_unit_ns(load, begin, end);
  }
  const int launches = std::max(1, static_cast<int>(load.duty * kPeriodNs / unit_ns + 0.5));
  // Longer than asked for where one launch is longer than its share.
  const double period_ns = std::max(kPeriodNs, launches * unit_ns / load.duty);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  *load.cycles = 0;

  double busy_ns = 0;
  uint64_t total_launches = 0;
  const int64_t start_ns = read_mono_ns();
  const auto stop_ns = static_cast<int64_t>(start_ns + std::atof(argv[3]) * 1e9);
  for (int64_t next_ns = start_ns; read_mono_ns() < stop_ns;) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    for (int i = 0; i < launches; ++i) load.launch();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "a launch");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    busy_ns += ms * 1e6;
    total_launches += launches;
    next_ns += static_cast<int64_t>(period_ns);
    if (load.duty >= 1) continue;
    while (read_mono_ns() < next_ns) {
      const timespec pause{0, 50'000};
      nanosleep(&pause, nullptr);
    }
  }
  const int64_t end_ns = read_mono_ns();
  const auto wall_ns = static_cast<double>(end_ns - start_ns);
  // Warp instructions that a block issues, over those that its SM's pipe could. FP32: 4 a cycle; FP64: 2;
  // FP16: 4 of two numbers a lane.
  const double issued = 1.0 * (kFmaThreads / 32) * 16.0 * kChains * load.rounds * total_launches;
  const double possible = static_cast<double>(*load.cycles) * (load.kind == "fp64" ? 2 : 4);
  const double pipe = load.is_fma() && possible > 0 ? issued / possible * busy_ns / wall_ns : 0;
  std::printf(
      "{\"kind\": \"%s\", \"duty\": %g, \"busy_ratio\": %.5f, \"bytes_per_second\": %.0f, "
      "\"pipe_ratio\": %.5f, \"sms\": %d, \"unit_ns\": %.0f, \"start_mono_ns\": %lld, "
      "\"end_mono_ns\": %lld}\n",
      load.kind.c_str(), load.duty, busy_ns / wall_ns,
      static_cast<double>(load.bytes()) * total_launches / wall_ns * 1e9, pipe, load.sms, unit_ns,
      static_cast<long long>(start_ns), static_cast<long long>(end_ns));
  return 0;
}
