// Kernels whose limits are known, for PC sampling: each launch takes some 0.2 ms on an H200.
//
// usage: stall_kernels serve IN OUT           reads lines "KERNEL|all SECONDS" from the pipe IN; OUT gets the
//                                             launches of each kernel, as JSON
//        stall_kernels once KERNEL            launches it twelve times, for Nsight Compute

#include <time.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>

namespace {

constexpr int kThreads = 256;
constexpr size_t kWords = size_t{1} << 26;  // 256 MiB: beyond the caches

double read_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

// Each load waits for the one before.
__global__ void chase_pointers(const unsigned* next, int steps, unsigned* out) {
  unsigned at = (blockIdx.x * blockDim.x + threadIdx.x) * 7919u % kWords;
  for (int i = 0; i < steps; ++i) at = next[at];
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

__global__ void copy_stream(const float4* from, float4* to, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    to[i] = from[i];
  }
}

// One chain: each instruction waits for the one before.
__global__ void chain_fma(int rounds, float factor, float* out) {
  float value = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int step = 0; step < 32; ++step) value = fmaf(value, factor, factor);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

// Eight chains: the pipe is full.
__global__ void fill_fma(int rounds, float factor, float* out) {
  float values[8];
  for (int k = 0; k < 8; ++k) values[k] = threadIdx.x + k;
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int step = 0; step < 8; ++step) {
#pragma unroll
      for (float& value : values) value = fmaf(value, factor, factor);
    }
  }
  float sum = 0;
  for (const float value : values) sum += value;
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// One warp works, the others wait for it.
__global__ void wait_at_barriers(int rounds, float factor, float* out) {
  float value = threadIdx.x;
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x < 32) {
#pragma unroll
      for (int step = 0; step < 64; ++step) value = fmaf(value, factor, factor);
    }
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

// All threads of a warp hit one bank.
__global__ void conflict_banks(int rounds, float* out) {
  __shared__ volatile float shared[32 * 33];
  for (int i = threadIdx.x; i < 32 * 33; i += blockDim.x) shared[i] = i;
  __syncthreads();
  float sum = 0;
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < rounds; ++i) sum += shared[lane * 32 + (i & 1)];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// An array indexed at run time lies in local memory.
__global__ void spill_array(int rounds, const int* order, float* out) {
  float values[96];
  for (int i = 0; i < 96; ++i) values[i] = static_cast<float>(i) * threadIdx.x;
  float sum = 0;
  for (int i = 0; i < rounds; ++i) {
    const int at = order[i & 63] + (i * 7 & 31);
    values[at] += sum;
    sum += values[(at + 13) % 96];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// The chain on one block: the rest of the GPU idles.
__global__ void run_one_block(int rounds, float factor, float* out) {
  float value = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int step = 0; step < 32; ++step) value = fmaf(value, factor, factor);
  }
  out[threadIdx.x] = value;
}

namespace {

struct Memory {
  unsigned* next = nullptr;
  float* a = nullptr;
  float* b = nullptr;
  int* order = nullptr;
  int sms = 0;
};

__global__ void fill_next(unsigned* next) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < kWords; i += size_t{gridDim.x} * blockDim.x) {
    next[i] = static_cast<unsigned>((i * 1664525u + 1013904223u) % kWords);
  }
}

void launch(const std::string& kernel, const Memory& memory) {
  const int many = memory.sms * 8;
  if (kernel == "chase_pointers") chase_pointers<<<memory.sms, kThreads>>>(memory.next, 300, memory.next + kWords);
  if (kernel == "copy_stream") {
    copy_stream<<<many, kThreads>>>(reinterpret_cast<float4*>(memory.a), reinterpret_cast<float4*>(memory.b), kWords / 4);
  }
  if (kernel == "chain_fma") chain_fma<<<memory.sms, kThreads>>>(2'000, 0.999f, memory.a);
  if (kernel == "fill_fma") fill_fma<<<many, kThreads>>>(500, 0.999f, memory.a);
  if (kernel == "wait_at_barriers") wait_at_barriers<<<many, kThreads>>>(300, 0.999f, memory.a);
  if (kernel == "conflict_banks") conflict_banks<<<many, kThreads>>>(400, memory.a);
  if (kernel == "spill_array") spill_array<<<many, kThreads>>>(300, memory.order, memory.a);
  if (kernel == "run_one_block") run_one_block<<<1, kThreads>>>(2'000, 0.999f, memory.a);
}

const char* const kKernels[] = {"chase_pointers", "copy_stream", "chain_fma", "fill_fma",
                                "wait_at_barriers", "conflict_banks", "spill_array", "run_one_block"};

}  // namespace

int main(int count, char** words) {
  Memory memory;
  int device = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&memory.sms, cudaDevAttrMultiProcessorCount, device);
  cudaMalloc(&memory.next, (kWords + (1 << 20)) * sizeof(unsigned));
  cudaMalloc(&memory.a, kWords * sizeof(float));
  cudaMalloc(&memory.b, kWords * sizeof(float));
  cudaMalloc(&memory.order, 64 * sizeof(int));
  cudaMemset(memory.order, 0, 64 * sizeof(int));
  fill_next<<<1024, kThreads>>>(memory.next);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  if (count == 3 && std::strcmp(words[1], "once") == 0) {
    for (int i = 0; i < 12; ++i) launch(words[2], memory);
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
  }
  if (count != 4) return 2;
  std::ifstream orders(words[2]);
  std::ofstream answers(words[3]);
  answers << "ready" << std::endl;
  std::string which;
  double seconds = 0;
  while (orders >> which >> seconds) {
    std::map<std::string, long> launches;
    const double begin = read_seconds();
    while (read_seconds() - begin < seconds) {
      for (const char* kernel : kKernels) {
        if (which != "all" && which != kernel) continue;
        for (int i = 0; i < 5; ++i) launch(kernel, memory);
        launches[kernel] += 5;
      }
      if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    }
    answers << "{";
    const char* before = "";
    for (const auto& [kernel, times] : launches) {
      answers << before << '"' << kernel << "\": " << times;
      before = ", ";
    }
    answers << "}" << std::endl;
  }
  return 0;
}
