#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpuperf {

// The name of an API call by CUPTI's callback id: "cudaLaunchKernel", "cuLaunchKernelEx_ptsz";
// "runtime call 999" where this version does not know it.
std::string get_api_name(bool is_driver, uint32_t callback_id);

// Without what only tells variants of one function apart: "cuMemcpyHtoD_v2",
// "cudaLaunchKernel_ptsz" and "cudaMemcpy_ptds" become "cuMemcpyHtoD", "cudaLaunchKernel",
// "cudaMemcpy".
std::string_view get_plain_api_name(std::string_view name);

// Whether a function of the driver, by its symbol, gives a GPU work: kernels, graphs, copies,
// memsets. Every launch passes one of these, whichever API it was made through.
bool is_launch_entry(std::string_view symbol);

// Whether it is one of those that launch a kernel.
bool is_kernel_launch(std::string_view symbol);

// What a function of the driver (of the runtime: a launch) does to a CUDA graph, by its symbol: a
// gpuperf_graph_call.
uint32_t get_graph_call(std::string_view symbol);

}  // namespace gpuperf
