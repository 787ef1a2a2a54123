#include "daemon/model/api_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "bpf/records.h"
#include "daemon/probe/attach/hook_notes.h"

namespace gpuperf {
namespace {

TEST(ApiNamesTest, NamesCallsByTheirIds) {
  EXPECT_EQ(get_api_name(false, 211), "cudaLaunchKernel");
  EXPECT_EQ(get_api_name(true, 307), "cuLaunchKernel");
  EXPECT_EQ(get_api_name(false, 165), "cudaDeviceSynchronize");
  EXPECT_EQ(get_api_name(false, 99'999), "runtime call 99999");
  EXPECT_EQ(get_api_name(true, 0), "driver call 0");
}

TEST(ApiNamesTest, TellsAFunctionFromItsVariants) {
  EXPECT_EQ(get_plain_api_name("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
  EXPECT_EQ(get_plain_api_name("cudaMemcpy_ptds"), "cudaMemcpy");
  EXPECT_EQ(get_plain_api_name("cuLaunchKernelEx"), "cuLaunchKernelEx");
}

TEST(ApiNamesTest, KnowsWhatGivesAGpuWork) {
  for (const char* symbol :
       {"cuLaunchKernel", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel", "cuGraphLaunch",
        "cuMemcpyHtoD_v2", "cuMemcpyBatchAsync_v2", "cuMemsetD8Async", "cuMemsetD2D32_v2"}) {
    EXPECT_TRUE(is_launch_entry(symbol)) << symbol;
  }
  for (const char* symbol : {"cuLaunchHostFunc", "cudaLaunchKernel", "cuMemAlloc_v2",
                             "cuGraphInstantiate", "cuStreamSynchronize", "cuMemGetInfo_v2"}) {
    EXPECT_FALSE(is_launch_entry(symbol)) << symbol;
  }
}

// CUPTI's tables have all that the driver exports. cuMemcpy_v2 is in them and in no driver.
TEST(ApiNamesTest, WhatGivesAGpuWorkIsHooked) {
  std::set<std::string> launches, hooked;
  for (uint32_t id = 0; id < 2'000; ++id) {
    const std::string name = get_api_name(true, id);
    if (is_launch_entry(name) && name != "cuMemcpy_v2") launches.insert(name);
  }
  for (const std::string_view name : HookNotes::kEntries) hooked.emplace(name);
  EXPECT_EQ(launches, hooked);
}

TEST(ApiNamesTest, KnowsWhatConcernsGraphs) {
  EXPECT_EQ(get_graph_call("cuGraphLaunch_ptsz"), GPUPERF_GRAPH_LAUNCHED);
  EXPECT_EQ(get_graph_call("cuStreamBeginCapture_v2"), GPUPERF_GRAPH_CAPTURE_BEGAN);
  EXPECT_EQ(get_graph_call("cuStreamEndCapture"), GPUPERF_GRAPH_CAPTURE_ENDED);
  EXPECT_EQ(get_graph_call("cuGraphInstantiateWithParams_ptsz"), GPUPERF_GRAPH_INSTANTIATED);
  EXPECT_EQ(get_graph_call("cuGraphExecUpdate_v2"), GPUPERF_GRAPH_UPDATED);
  EXPECT_EQ(get_graph_call("cuGraphExecDestroy"), GPUPERF_GRAPH_EXEC_DESTROYED);
  EXPECT_EQ(get_graph_call("cuGraphDestroy"), GPUPERF_GRAPH_DESTROYED);
  EXPECT_EQ(get_graph_call("cudaGraphLaunch_ptsz"), GPUPERF_GRAPH_LAUNCHED);
  EXPECT_EQ(get_graph_call("cudaGraphInstantiate"), GPUPERF_GRAPH_NONE);
  EXPECT_EQ(get_graph_call("cuGraphDestroyNode"), GPUPERF_GRAPH_NONE);
}

}  // namespace
}  // namespace gpuperf
