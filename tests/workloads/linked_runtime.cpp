// A program that the CUDA runtime is linked into, as nvcc does by default: it maps no libcudart,
// and loads the driver (libcuda.so.1) when it runs. Calls cudaMalloc and cudaFree a known number of
// times, whatever they answer, and prints one JSON line as count_calls does.

#include <dlfcn.h>

#include "options.h"
#include "truth.h"

#ifdef GPUPERF_STANDIN
#include "standin/cuda_standin.h"
// What nvcc's startup code calls; the linked-in runtime does not hide it.
extern "C" void** __cudaRegisterFatBinary(void*) { return nullptr; }
#else
#include <cuda_runtime_api.h>
#endif

int main(int argc, char** argv) {
  using namespace workload;
  const Options options(argc, argv,
                        {{"--calls", "100"},
                         {"--driver", ""},           // libcuda.so.1, kept open by its path
                         {"--wait-for-file", ""}});  // begin once it exists
  const std::string& driver = options.get_text("--driver");
  if (!driver.empty() && dlopen(driver.c_str(), RTLD_LAZY) == nullptr) {
    fprintf(stderr, "linked_runtime: %s\n", dlerror());
    return 1;
  }
  wait_for_file(options.get_text("--wait-for-file"));

  Truth truth;
  for (uint64_t i = 0; i < options.get_count("--calls"); ++i) {
    void* memory = nullptr;
    count_call(truth["cudaMalloc"], cudaMalloc(&memory, 256));
    count_call(truth["cudaFree"], cudaFree(memory));
  }
  print_line("{\"program\":\"linked_runtime\",\"pid\":" + std::to_string(getpid()) +
             ",\"calls\":" + render_truth(truth) + "}");
  return 0;
}
