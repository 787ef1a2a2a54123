#include "daemon/model/status_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "daemon/model/status_tables.h"

namespace gpuperf {
namespace {

TEST(FindStatusKindTest, GoesByThePrefixOfTheLibrary) {
  EXPECT_EQ(find_status_kind("cudaMalloc"), StatusKind::kCudaRuntime);
  EXPECT_EQ(find_status_kind("cudaMemcpyAsync_ptsz"), StatusKind::kCudaRuntime);
  EXPECT_EQ(find_status_kind("cuMemAlloc_v2"), StatusKind::kCudaDriver);
  EXPECT_EQ(find_status_kind("cuLaunchKernelEx"), StatusKind::kCudaDriver);
  EXPECT_EQ(find_status_kind("cublasSgemm_v2"), StatusKind::kCublas);
  EXPECT_EQ(find_status_kind("cublasGemmEx_64"), StatusKind::kCublas);
  EXPECT_EQ(find_status_kind("cublasLtMatmul"), StatusKind::kCublas);
  EXPECT_EQ(find_status_kind("cublasXtSgemm"), StatusKind::kCublas);
  EXPECT_EQ(find_status_kind("cudnnBackendExecute"), StatusKind::kCudnn);
  EXPECT_EQ(find_status_kind("ncclAllReduce"), StatusKind::kNccl);
  EXPECT_EQ(find_status_kind("pncclAllReduce"), StatusKind::kNccl);
}

TEST(FindStatusKindTest, LeavesOtherFunctionsAlone) {
  for (const char* symbol :
       {"", "cu", "cuda", "cudamalloc", "vectorAdd", "cufftExecC2C", "cusparseSpMM",
        "cusolverDnSgetrf", "curandGenerate", "cuptiActivityEnable", "cuFileRead",
        "cutensorContract", "cudnn_graph_version", "__cudaRegisterFatBinary",
        "_ZN2at4_ops6matmul4callERKNS_6TensorES4_", "_Z10cudaMallocIfE9cudaErrorPPT_m"}) {
    EXPECT_EQ(find_status_kind(symbol), StatusKind::kNone) << symbol;
  }
}

TEST(FindStatusKindTest, KnowsWhatReturnsNoStatusOfItsOwn) {
  for (const char* symbol :
       {"cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorString", "cudaCreateChannelDesc",
        "cublasGetStatusName", "cublasLtGetVersion", "cudnnGetVersion", "cudnnGetLastErrorString",
        "ncclGetErrorString", "pncclGetLastError", "pncclTeamWorld"}) {
    EXPECT_EQ(find_status_kind(symbol), StatusKind::kNone) << symbol;
  }
}

TEST(FindStatusKindTest, TellsTheFirstCublasInterfaceFromTheSecond) {
  for (const char* symbol : {"cublasSgemm", "cublasZher2k", "cublasIdamax", "cublasScnrm2",
                             "cublasZdscal", "cublasCsrot", "cublasSdot"}) {
    EXPECT_EQ(find_status_kind(symbol), StatusKind::kNone) << symbol;
    EXPECT_EQ(find_status_kind(std::string(symbol) + "_v2"), StatusKind::kCublas) << symbol;
  }
  for (const char* symbol :
       {"cublasSgemmBatched", "cublasSgeam", "cublasHgemm", "cublasSdgmm", "cublasCgemm3m"}) {
    EXPECT_EQ(find_status_kind(symbol), StatusKind::kCublas) << symbol;
  }
}

TEST(StatusNameTest, SpellsKnownCodesAndNumbersTheRest) {
  EXPECT_EQ(get_status_name(StatusKind::kCudaRuntime, 2), "cudaErrorMemoryAllocation");
  EXPECT_EQ(get_status_name(StatusKind::kCudaRuntime, 999), "cudaErrorUnknown");
  EXPECT_EQ(get_status_name(StatusKind::kCudaDriver, 100), "CUDA_ERROR_NO_DEVICE");
  EXPECT_EQ(get_status_name(StatusKind::kCublas, 1), "CUBLAS_STATUS_NOT_INITIALIZED");
  EXPECT_EQ(get_status_name(StatusKind::kCudnn, 3000), "CUDNN_STATUS_NOT_SUPPORTED");
  EXPECT_EQ(get_status_name(StatusKind::kNccl, 6), "ncclRemoteError");
  EXPECT_EQ(get_status_name(StatusKind::kCudaRuntime, 123456), "123456");
  EXPECT_EQ(get_status_name(StatusKind::kCudnn, -1), "-1");
  EXPECT_EQ(get_status_name(StatusKind::kNone, 2), "2");
}

// A label made of the name must stand for one code only.
TEST(StatusNameTest, HasEachCodeAndEachNameOnce) {
  for (const std::span<const StatusName> table :
       {std::span<const StatusName>(kCudaRuntimeNames),
        std::span<const StatusName>(kCudaDriverNames), std::span<const StatusName>(kCublasNames),
        std::span<const StatusName>(kCudnnNames), std::span<const StatusName>(kNcclNames)}) {
    EXPECT_TRUE(std::ranges::is_sorted(table, std::ranges::less_equal{}, &StatusName::code) ||
                table.size() < 2);
    std::vector<std::string_view> names;
    for (const StatusName& row : table) names.push_back(row.name);
    std::ranges::sort(names);
    EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  }
}

TEST(BenignCodesTest, AreTheOnesThatOnlyMeanNotReady) {
  const auto names_of = [](StatusKind kind) {
    std::vector<std::string> names;
    for (const int32_t code : get_benign_codes(kind)) names.push_back(get_status_name(kind, code));
    return names;
  };
  using Names = std::vector<std::string>;

  EXPECT_EQ(names_of(StatusKind::kNone), Names{});
  EXPECT_EQ(names_of(StatusKind::kCudaRuntime), Names{"cudaErrorNotReady"});
  EXPECT_EQ(names_of(StatusKind::kCudaDriver), Names{"CUDA_ERROR_NOT_READY"});
  EXPECT_EQ(names_of(StatusKind::kCublas), Names{});
  // 12: the same status in cuDNN 8.
  EXPECT_EQ(names_of(StatusKind::kCudnn), (Names{"CUDNN_STATUS_RUNTIME_IN_PROGRESS", "12"}));
  EXPECT_EQ(names_of(StatusKind::kNccl), Names{"ncclInProgress"});
}

}  // namespace
}  // namespace gpuperf
