// Calls more than fifty functions of the real libcudart, libcublas, libcudnn and libnccl, each as
// often as the others, with null for every argument: with or without a GPU each returns a status,
// and a probe sees every call. Libraries are opened at run time, so that it builds everywhere;
// those that are not there are left out. Prints one JSON line:
//   {"program":"real_calls","pid":71,"libraries":["libcudart.so.13",...],
//    "calls":{"cudaMalloc":{"calls":100,"errors":{"1":100}},...}}

#include <dlfcn.h>

#include <string>
#include <vector>

#include "options.h"
#include "truth.h"

using namespace workload;

namespace {

// None passes a struct by value, calls back, or waits for others; enough arguments for any of them.
using Function = int (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                         uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                         uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

struct Library {
  std::vector<const char*> names;  // of the file, newest first
  std::vector<const char*> symbols;
};

const Library kLibraries[] = {
    {{"libcudart.so.13", "libcudart.so.12"},
     {"cudaGetDeviceCount",
      "cudaGetDevice",
      "cudaSetDevice",
      "cudaMalloc",
      "cudaFree",
      "cudaMallocHost",
      "cudaHostAlloc",
      "cudaFreeHost",
      "cudaMallocManaged",
      "cudaMallocAsync",
      "cudaFreeAsync",
      "cudaMemcpy",
      "cudaMemcpyAsync",
      "cudaMemcpy2D",
      "cudaMemset",
      "cudaMemsetAsync",
      "cudaMemGetInfo",
      "cudaStreamCreate",
      "cudaStreamCreateWithFlags",
      "cudaStreamDestroy",
      "cudaStreamSynchronize",
      "cudaStreamQuery",
      "cudaStreamWaitEvent",
      "cudaEventCreate",
      "cudaEventCreateWithFlags",
      "cudaEventDestroy",
      "cudaEventRecord",
      "cudaEventSynchronize",
      "cudaEventQuery",
      "cudaEventElapsedTime",
      "cudaDeviceSynchronize",
      "cudaDeviceGetAttribute",
      "cudaFuncGetAttributes",
      "cudaLaunchKernel",
      "cudaGraphCreate",
      "cudaGraphLaunch",
      "cudaPointerGetAttributes",
      "cudaRuntimeGetVersion",
      "cudaDriverGetVersion"}},
    {{"libcublas.so.13", "libcublas.so.12"},
     {"cublasCreate_v2", "cublasDestroy_v2", "cublasGetVersion_v2", "cublasSetStream_v2",
      "cublasGetStream_v2", "cublasSetMathMode", "cublasSgemm_v2", "cublasDgemm_v2", "cublasGemmEx",
      "cublasGemmBatchedEx", "cublasGemmStridedBatchedEx", "cublasSaxpy_v2", "cublasSdot_v2",
      "cublasSgemv_v2"}},
    {{"libcudnn.so.9"},
     {"cudnnCreate", "cudnnDestroy", "cudnnSetStream", "cudnnCreateTensorDescriptor",
      "cudnnSetTensor4dDescriptor", "cudnnDestroyTensorDescriptor", "cudnnConvolutionForward",
      "cudnnSoftmaxForward", "cudnnActivationForward"}},
    {{"libnccl.so.2"},
     {"ncclGetVersion", "ncclCommCount", "ncclCommUserRank", "ncclCommDestroy", "ncclAllReduce",
      "ncclBroadcast", "ncclAllGather", "ncclReduceScatter", "ncclGroupStart", "ncclGroupEnd"}},
};

struct Loaded {
  const char* symbol;
  Function function;
};

void load(const Library& library, std::vector<std::string>& opened, std::vector<Loaded>& loaded) {
  for (const char* name : library.names) {
    void* const handle = dlopen(name, RTLD_NOW);
    if (handle == nullptr) continue;
    opened.emplace_back(name);
    for (const char* symbol : library.symbols) {
      void* const address = dlsym(handle, symbol);
      if (address != nullptr) loaded.push_back({symbol, reinterpret_cast<Function>(address)});
    }
    return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--rounds", "100"},
                         {"--only", ""},               // one symbol
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  const uint64_t rounds = options.get_count("--rounds");
  const std::string& only = options.get_text("--only");
  std::vector<std::string> opened;
  std::vector<Loaded> loaded;
  for (const Library& library : kLibraries) load(library, opened, loaded);
  wait_for_file(options.get_text("--wait-for-file"));

  Truth truth;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (const auto& [symbol, function] : loaded) {
      if (!only.empty() && only != symbol) continue;
      count_call(truth[symbol], function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    }
  }

  std::string names;
  for (const std::string& name : opened) names += (names.empty() ? "\"" : ",\"") + name + "\"";
  print_line("{\"program\":\"real_calls\",\"pid\":" + std::to_string(getpid()) +
             ",\"libraries\":[" + names + "],\"calls\":" + render_truth(truth) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
