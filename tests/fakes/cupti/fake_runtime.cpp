// Stands for a library that uses the driver, such as libcudart: it has found the driver's functions
// before anybody could stand in their place.

#include <dlfcn.h>

#include "tests/fakes/cupti/fake_cuda.h"

namespace {

// Filled when the library is loaded, as libcudart's table is filled before its first cuInit.
FakeEntries g_table;
const FakeEntries* g_found = &g_table;

template <typename Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

__attribute__((constructor)) void fill_table() {
  find(g_table.launch_kernel, "cuLaunchKernel");
  find(g_table.graph_launch, "cuGraphLaunch");
  find(g_table.graph_create, "cuGraphCreate");
  find(g_table.graph_instantiate, "cuGraphInstantiateWithFlags");
  find(g_table.begin_capture, "cuStreamBeginCapture_v2");
  find(g_table.memcpy_async, "cuMemcpyAsync");
  find(g_table.memset_d8_async, "cuMemsetD8Async");
  (void)fake_cuda_set_entries(g_found);
}

}  // namespace

// By the import slot, or by the table. Takes `duration_us` and fails without a function.
extern "C" CUresult fake_runtime_launch(bool by_table, CUfunction function, unsigned duration_us) {
  const auto launch = by_table ? g_found->launch_kernel : &cuLaunchKernel;
  return launch(function, 1, 1, 1, 1, 1, 1, duration_us, nullptr, nullptr, nullptr);
}
