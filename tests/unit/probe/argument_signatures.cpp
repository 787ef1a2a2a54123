#include "argument_signatures.h"

#include <cctype>
#include <regex>
#include <type_traits>

// The newest headers the rows were written from; older ones lack functions or differ in places.
#if __has_include(<cuda.h>) && __has_include(<cublasLt.h>) && __has_include(<nccl.h>)
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
// nccl.h asks for cuda_runtime.h, whose templates overload the very functions looked at here.
#define __CUDA_RUNTIME_H__
#include <nccl.h>

#include "tests/unit/files.h"
#if CUDART_VERSION >= 13000 && NCCL_VERSION_CODE >= 22800
#define GPUPERF_HAS_HEADERS
#endif
#endif

namespace gpuperf {

#ifdef GPUPERF_HAS_HEADERS

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // programs still call them

namespace {

constexpr int kRegisters = 6;
constexpr size_t kLargestInRegistersBytes = 16;

template <class T>
ParameterKind kind_of() {
  if constexpr (std::is_pointer_v<T>) return ParameterKind::kPointer;
  if constexpr (std::is_enum_v<T>) return ParameterKind::kEnum;
  if constexpr (std::is_floating_point_v<T>) return ParameterKind::kFloat;
  if constexpr (std::is_class_v<T>) return ParameterKind::kStruct;
  if constexpr (std::is_signed_v<T>) return ParameterKind::kSigned;
  return ParameterKind::kUnsigned;
}

// The classes of the System V ABI, as far as C interfaces without floating structs need them.
void place(std::vector<Parameter>& parameters) {
  int next_register = 0;
  int next_on_stack = kRegisters;
  for (Parameter& parameter : parameters) {
    if (parameter.kind == ParameterKind::kFloat) continue;
    const int words = static_cast<int>((parameter.size_bytes + 7) / 8);
    const bool fits = parameter.size_bytes <= kLargestInRegistersBytes;
    int& next = fits && next_register + words <= kRegisters ? next_register : next_on_stack;
    parameter.source = next;
    next += words;
  }
}

template <class R, class... P>
std::vector<Parameter> parameters_of(R (*)(P...)) {
  std::vector<Parameter> parameters = {Parameter{kind_of<P>(), sizeof(P), -1, ""}...};
  place(parameters);
  return parameters;
}

// "const float* const Aarray[]" -> "Aarray".
std::string name_of(const std::string& declaration) {
  static const std::regex kName(R"((\w+)\s*(\[[^\]]*\])?\s*(__dv\(.*\)|=.*)?\s*$)");
  std::smatch match;
  return std::regex_search(declaration, match, kName) ? match[1].str() : "";
}

std::string read_header(const std::string& name) {
  const std::string text = read_file(std::string(GPUPERF_CUDA_INCLUDE_DIR) + "/" + name);
  static const std::regex kComment(R"(/\*[^*]*\*+([^/*][^*]*\*+)*/|//[^\n]*)");
  return std::regex_replace(text, kComment, " ");
}

// Names of the parameters as the header's first declaration of the function gives them.
std::vector<std::string> read_names(const std::string& header, const std::string& function) {
  const std::regex declaration(function + R"(\s*\(([^;{]*)\)\s*;)");
  std::smatch match;
  // Tried only where the name stands: a search through the whole header takes long.
  size_t at = header.find(function);
  for (; at != std::string::npos; at = header.find(function, at + 1)) {
    const bool begins_word =
        at == 0 || (std::isalnum(header[at - 1]) == 0 && header[at - 1] != '_');
    if (begins_word &&
        std::regex_search(header.begin() + static_cast<std::ptrdiff_t>(at), header.end(), match,
                          declaration, std::regex_constants::match_continuous)) {
      break;
    }
  }
  if (at == std::string::npos) return {};
  std::vector<std::string> names;
  const std::string list = match[1];
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(name_of(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return names;
}

struct Row {
  const char* header;
  const char* name;    // as programs write it
  const char* symbol;  // as the headers' macros expand it
  std::vector<Parameter> parameters;
};

#define TEXT_OF(x) #x
#define EXPANDED_TEXT_OF(x) TEXT_OF(x)
#define SIGNATURE(header, name)                                                                 \
  Row {                                                                                         \
    header, #name, EXPANDED_TEXT_OF(name), parameters_of(static_cast<decltype(&name)>(nullptr)) \
  }

// These have an inline overload for programs older than CUDA 11: the exported one is chosen here,
// and it does not compile unless that is its type.
using Handle = cublasHandle_t;
using Op = cublasOperation_t;
using Type = cudaDataType;
using GemmEx = cublasStatus_t (*)(Handle, Op, Op, int, int, int, const void*, const void*, Type,
                                  int, const void*, Type, int, const void*, void*, Type, int,
                                  cublasComputeType_t, cublasGemmAlgo_t);
using GemmBatchedEx = cublasStatus_t (*)(Handle, Op, Op, int, int, int, const void*,
                                         const void* const*, Type, int, const void* const*, Type,
                                         int, const void*, void* const*, Type, int, int,
                                         cublasComputeType_t, cublasGemmAlgo_t);
using GemmStridedBatchedEx = cublasStatus_t (*)(Handle, Op, Op, int, int, int, const void*,
                                                const void*, Type, int, long long, const void*,
                                                Type, int, long long, const void*, void*, Type, int,
                                                long long, int, cublasComputeType_t,
                                                cublasGemmAlgo_t);
#define OVERLOADED(name, type) \
  Row { "cublas_api.h", #name, #name, parameters_of(decltype(static_cast<type>(&name)){}) }

// crt/device_functions.h shows this one to nvcc alone.
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                               size_t sharedMem, cudaStream_t stream);

std::vector<Row> runtime_rows() {
  return {
      SIGNATURE("cuda_runtime_api.h", cudaDeviceSynchronize),
      SIGNATURE("cuda_runtime_api.h", cudaEventQuery),
      SIGNATURE("cuda_runtime_api.h", cudaEventRecord),
      SIGNATURE("cuda_runtime_api.h", cudaEventSynchronize),
      SIGNATURE("cuda_runtime_api.h", cudaFree),
      SIGNATURE("cuda_runtime_api.h", cudaFreeAsync),
      SIGNATURE("cuda_runtime_api.h", cudaFreeHost),
      SIGNATURE("cuda_runtime_api.h", cudaGraphLaunch),
      SIGNATURE("cuda_runtime_api.h", cudaGraphUpload),
      SIGNATURE("cuda_runtime_api.h", cudaHostAlloc),
      SIGNATURE("cuda_runtime_api.h", cudaHostRegister),
      SIGNATURE("cuda_runtime_api.h", cudaHostUnregister),
      SIGNATURE("cuda_runtime_api.h", cudaLaunchCooperativeKernel),
      SIGNATURE("cuda_runtime_api.h", cudaLaunchHostFunc),
      SIGNATURE("cuda_runtime_api.h", cudaLaunchKernel),
      SIGNATURE("cuda_runtime_api.h", cudaLaunchKernelExC),
      SIGNATURE("cuda_runtime_api.h", cudaLibraryGetKernel),
      SIGNATURE("cuda_runtime_api.h", cudaMalloc),
      SIGNATURE("cuda_runtime_api.h", cudaMalloc3D),
      SIGNATURE("cuda_runtime_api.h", cudaMallocAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMallocFromPoolAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMallocHost),
      SIGNATURE("cuda_runtime_api.h", cudaMallocManaged),
      SIGNATURE("cuda_runtime_api.h", cudaMallocPitch),
      SIGNATURE("cuda_runtime_api.h", cudaMemPrefetchAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy2D),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy2DArrayToArray),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy2DAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy2DFromArray),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy2DFromArrayAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy2DToArray),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy2DToArrayAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy3D),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy3DAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy3DPeer),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpy3DPeerAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyArrayToArray),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyFromArray),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyFromArrayAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyFromSymbol),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyFromSymbolAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyPeer),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyPeerAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyToArray),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyToArrayAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyToSymbol),
      SIGNATURE("cuda_runtime_api.h", cudaMemcpyToSymbolAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemset),
      SIGNATURE("cuda_runtime_api.h", cudaMemset2D),
      SIGNATURE("cuda_runtime_api.h", cudaMemset2DAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemset3D),
      SIGNATURE("cuda_runtime_api.h", cudaMemset3DAsync),
      SIGNATURE("cuda_runtime_api.h", cudaMemsetAsync),
      SIGNATURE("cuda_runtime_api.h", cudaStreamQuery),
      SIGNATURE("cuda_runtime_api.h", cudaStreamSynchronize),
      SIGNATURE("cuda_runtime_api.h", cudaStreamWaitEvent),
      SIGNATURE("crt/device_functions.h", __cudaLaunchKernel),
  };
}

std::vector<Row> driver_rows() {
  return {
      SIGNATURE("cuda.h", cuArray3DCreate),
      SIGNATURE("cuda.h", cuArrayCreate),
      SIGNATURE("cuda.h", cuArrayDestroy),
      SIGNATURE("cuda.h", cuCtxCreate),
      SIGNATURE("cuda.h", cuCtxDestroy),
      SIGNATURE("cuda.h", cuCtxSynchronize),
      SIGNATURE("cuda.h", cuDevicePrimaryCtxRelease),
      SIGNATURE("cuda.h", cuDevicePrimaryCtxReset),
      SIGNATURE("cuda.h", cuDevicePrimaryCtxRetain),
      SIGNATURE("cuda.h", cuEventQuery),
      SIGNATURE("cuda.h", cuEventRecord),
      SIGNATURE("cuda.h", cuEventSynchronize),
      SIGNATURE("cuda.h", cuGraphLaunch),
      SIGNATURE("cuda.h", cuGraphUpload),
      SIGNATURE("cuda.h", cuIpcCloseMemHandle),
      SIGNATURE("cuda.h", cuIpcOpenMemHandle),
      SIGNATURE("cuda.h", cuLaunchCooperativeKernel),
      SIGNATURE("cuda.h", cuLaunchHostFunc),
      SIGNATURE("cuda.h", cuLaunchKernel),
      SIGNATURE("cuda.h", cuLaunchKernelEx),
      SIGNATURE("cuda.h", cuKernelGetFunction),
      SIGNATURE("cuda.h", cuLibraryGetKernel),
      SIGNATURE("cuda.h", cuMemAddressFree),
      SIGNATURE("cuda.h", cuMemAddressReserve),
      SIGNATURE("cuda.h", cuMemAllocAsync),
      SIGNATURE("cuda.h", cuMemAllocFromPoolAsync),
      SIGNATURE("cuda.h", cuMemAllocHost),
      SIGNATURE("cuda.h", cuMemAllocManaged),
      SIGNATURE("cuda.h", cuMemAllocPitch),
      SIGNATURE("cuda.h", cuMemAlloc),
      SIGNATURE("cuda.h", cuMemCreate),
      SIGNATURE("cuda.h", cuMemFreeAsync),
      SIGNATURE("cuda.h", cuMemFreeHost),
      SIGNATURE("cuda.h", cuMemFree),
      SIGNATURE("cuda.h", cuMemHostAlloc),
      SIGNATURE("cuda.h", cuMemHostRegister),
      SIGNATURE("cuda.h", cuMemHostUnregister),
      SIGNATURE("cuda.h", cuMemImportFromShareableHandle),
      SIGNATURE("cuda.h", cuMemMap),
      SIGNATURE("cuda.h", cuMemPrefetchAsync),
      SIGNATURE("cuda.h", cuMemRelease),
      SIGNATURE("cuda.h", cuMemRetainAllocationHandle),
      SIGNATURE("cuda.h", cuMemSetAccess),
      SIGNATURE("cuda.h", cuMemUnmap),
      SIGNATURE("cuda.h", cuMipmappedArrayCreate),
      SIGNATURE("cuda.h", cuMipmappedArrayDestroy),
      SIGNATURE("cuda.h", cuMemcpy),
      SIGNATURE("cuda.h", cuMemcpy2DAsync),
      SIGNATURE("cuda.h", cuMemcpy2DUnaligned),
      SIGNATURE("cuda.h", cuMemcpy2D),
      SIGNATURE("cuda.h", cuMemcpy3DAsync),
      SIGNATURE("cuda.h", cuMemcpy3DPeer),
      SIGNATURE("cuda.h", cuMemcpy3DPeerAsync),
      SIGNATURE("cuda.h", cuMemcpy3D),
      SIGNATURE("cuda.h", cuMemcpyAsync),
      SIGNATURE("cuda.h", cuMemcpyAtoD),
      SIGNATURE("cuda.h", cuMemcpyAtoHAsync),
      SIGNATURE("cuda.h", cuMemcpyAtoH),
      SIGNATURE("cuda.h", cuMemcpyDtoA),
      SIGNATURE("cuda.h", cuMemcpyDtoDAsync),
      SIGNATURE("cuda.h", cuMemcpyDtoD),
      SIGNATURE("cuda.h", cuMemcpyDtoHAsync),
      SIGNATURE("cuda.h", cuMemcpyDtoH),
      SIGNATURE("cuda.h", cuMemcpyHtoAAsync),
      SIGNATURE("cuda.h", cuMemcpyHtoA),
      SIGNATURE("cuda.h", cuMemcpyHtoDAsync),
      SIGNATURE("cuda.h", cuMemcpyHtoD),
      SIGNATURE("cuda.h", cuMemcpyPeer),
      SIGNATURE("cuda.h", cuMemcpyPeerAsync),
      SIGNATURE("cuda.h", cuMemsetD16Async),
      SIGNATURE("cuda.h", cuMemsetD16),
      SIGNATURE("cuda.h", cuMemsetD2D16Async),
      SIGNATURE("cuda.h", cuMemsetD2D16),
      SIGNATURE("cuda.h", cuMemsetD2D32Async),
      SIGNATURE("cuda.h", cuMemsetD2D32),
      SIGNATURE("cuda.h", cuMemsetD2D8Async),
      SIGNATURE("cuda.h", cuMemsetD2D8),
      SIGNATURE("cuda.h", cuMemsetD32Async),
      SIGNATURE("cuda.h", cuMemsetD32),
      SIGNATURE("cuda.h", cuMemsetD8Async),
      SIGNATURE("cuda.h", cuMemsetD8),
      SIGNATURE("cuda.h", cuModuleGetFunction),
      SIGNATURE("cuda.h", cuStreamQuery),
      SIGNATURE("cuda.h", cuStreamSynchronize),
      SIGNATURE("cuda.h", cuStreamWaitEvent),
      SIGNATURE("cuda.h", cuStreamWaitValue32),
      SIGNATURE("cuda.h", cuStreamWaitValue64),
  };
}

std::vector<Row> cublas_rows() {
  return {
      SIGNATURE("cublas_api.h", cublasCgemm3m),
      SIGNATURE("cublas_api.h", cublasCgemm3mBatched),
      SIGNATURE("cublas_api.h", cublasCgemm3mBatched_64),
      SIGNATURE("cublas_api.h", cublasCgemm3mEx),
      SIGNATURE("cublas_api.h", cublasCgemm3mEx_64),
      SIGNATURE("cublas_api.h", cublasCgemm3mStridedBatched),
      SIGNATURE("cublas_api.h", cublasCgemm3mStridedBatched_64),
      SIGNATURE("cublas_api.h", cublasCgemm3m_64),
      SIGNATURE("cublas_api.h", cublasCgemmBatched),
      SIGNATURE("cublas_api.h", cublasCgemmBatched_64),
      SIGNATURE("cublas_api.h", cublasCgemmEx),
      SIGNATURE("cublas_api.h", cublasCgemmEx_64),
      SIGNATURE("cublas_api.h", cublasCgemmStridedBatched),
      SIGNATURE("cublas_api.h", cublasCgemmStridedBatched_64),
      SIGNATURE("cublas_api.h", cublasCgemm_v2),
      SIGNATURE("cublas_api.h", cublasCgemm_v2_64),
      SIGNATURE("cublas_api.h", cublasDgemmBatched),
      SIGNATURE("cublas_api.h", cublasDgemmBatched_64),
      SIGNATURE("cublas_api.h", cublasDgemmStridedBatched),
      SIGNATURE("cublas_api.h", cublasDgemmStridedBatched_64),
      SIGNATURE("cublas_api.h", cublasDgemm_v2),
      SIGNATURE("cublas_api.h", cublasDgemm_v2_64),
      SIGNATURE("cublas_api.h", cublasGemmBatchedEx_64),
      SIGNATURE("cublas_api.h", cublasGemmEx_64),
      SIGNATURE("cublas_api.h", cublasGemmGroupedBatchedEx),
      SIGNATURE("cublas_api.h", cublasGemmStridedBatchedEx_64),
      SIGNATURE("cublas_api.h", cublasHgemm),
      SIGNATURE("cublas_api.h", cublasHgemmBatched),
      SIGNATURE("cublas_api.h", cublasHgemmBatched_64),
      SIGNATURE("cublas_api.h", cublasHgemmStridedBatched),
      SIGNATURE("cublas_api.h", cublasHgemmStridedBatched_64),
      SIGNATURE("cublas_api.h", cublasHgemm_64),
      SIGNATURE("cublas_api.h", cublasSgemmBatched),
      SIGNATURE("cublas_api.h", cublasSgemmBatched_64),
      SIGNATURE("cublas_api.h", cublasSgemmEx),
      SIGNATURE("cublas_api.h", cublasSgemmEx_64),
      SIGNATURE("cublas_api.h", cublasSgemmStridedBatched),
      SIGNATURE("cublas_api.h", cublasSgemmStridedBatched_64),
      SIGNATURE("cublas_api.h", cublasSgemm_v2),
      SIGNATURE("cublas_api.h", cublasSgemm_v2_64),
      SIGNATURE("cublas_api.h", cublasZgemm3m),
      SIGNATURE("cublas_api.h", cublasZgemm3m_64),
      SIGNATURE("cublas_api.h", cublasZgemmBatched),
      SIGNATURE("cublas_api.h", cublasZgemmBatched_64),
      SIGNATURE("cublas_api.h", cublasZgemmStridedBatched),
      SIGNATURE("cublas_api.h", cublasZgemmStridedBatched_64),
      SIGNATURE("cublas_api.h", cublasZgemm_v2),
      SIGNATURE("cublas_api.h", cublasZgemm_v2_64),
      OVERLOADED(cublasGemmEx, GemmEx),
      OVERLOADED(cublasGemmBatchedEx, GemmBatchedEx),
      OVERLOADED(cublasGemmStridedBatchedEx, GemmStridedBatchedEx),
      SIGNATURE("cublasLt.h", cublasLtMatmul),
  };
}

std::vector<Row> nccl_rows() {
  return {
      SIGNATURE("nccl.h", ncclAllGather),
      SIGNATURE("nccl.h", ncclAllReduce),
      SIGNATURE("nccl.h", ncclAlltoAll),
      SIGNATURE("nccl.h", ncclBcast),
      SIGNATURE("nccl.h", ncclBroadcast),
      SIGNATURE("nccl.h", ncclCommAbort),
      SIGNATURE("nccl.h", ncclCommDestroy),
      SIGNATURE("nccl.h", ncclCommFinalize),
      SIGNATURE("nccl.h", ncclCommInitAll),
      SIGNATURE("nccl.h", ncclCommInitRank),
      SIGNATURE("nccl.h", ncclCommInitRankConfig),
      SIGNATURE("nccl.h", ncclCommInitRankScalable),
      SIGNATURE("nccl.h", ncclCommSplit),
      SIGNATURE("nccl.h", ncclGather),
      SIGNATURE("nccl.h", ncclGroupEnd),
      SIGNATURE("nccl.h", ncclGroupStart),
      SIGNATURE("nccl.h", ncclMemAlloc),
      SIGNATURE("nccl.h", ncclMemFree),
      SIGNATURE("nccl.h", ncclRecv),
      SIGNATURE("nccl.h", ncclReduce),
      SIGNATURE("nccl.h", ncclReduceScatter),
      SIGNATURE("nccl.h", ncclScatter),
      SIGNATURE("nccl.h", ncclSend),
  };
}

}  // namespace

std::map<std::string, std::vector<Parameter>> read_signatures() {
  std::map<std::string, std::string> headers;
  std::map<std::string, std::vector<Parameter>> signatures;
  for (auto rows : {runtime_rows(), driver_rows(), cublas_rows(), nccl_rows()}) {
    for (Row& row : rows) {
      std::string& header = headers[row.header];
      if (header.empty()) header = read_header(row.header);
      const std::vector<std::string> names = read_names(header, row.name);
      for (size_t i = 0; i < row.parameters.size() && i < names.size(); ++i)
        row.parameters[i].name = names[i];
      signatures[row.symbol] = std::move(row.parameters);
    }
  }
  return signatures;
}

std::vector<MemoryField> memory_fields() {
  using Copy = cudaMemcpy3DParms;
  using PeerCopy = cudaMemcpy3DPeerParms;
  // clang-format off
#define FIELD(symbol, name, type, member) \
  MemoryField { symbol, name, offsetof(type, member), sizeof(type::member) }
#define PART(symbol, name, type, member, part_type, part) \
  MemoryField { symbol, name, offsetof(type, member) + offsetof(part_type, part), sizeof(part_type::part) }
  // clang-format on
  std::vector<MemoryField> fields = {{"ncclCommInitRankScalable", "unique_id", 0, 8},
                                     {"ncclCommInitRankScalable", "unique_id 2", 8, 8},
                                     {"ncclCommInitRankScalable", "unique_id 3", 16, 8}};
  static_assert(sizeof(ncclUniqueId) >= 24);
  for (const char* symbol : {"cudaMemcpy3D", "cudaMemcpy3DAsync"}) {
    fields.insert(fields.end(), {PART(symbol, "dst", Copy, dstPtr, cudaPitchedPtr, ptr),
                                 PART(symbol, "src", Copy, srcPtr, cudaPitchedPtr, ptr),
                                 PART(symbol, "width_bytes", Copy, extent, cudaExtent, width),
                                 PART(symbol, "height", Copy, extent, cudaExtent, height),
                                 PART(symbol, "depth", Copy, extent, cudaExtent, depth),
                                 FIELD(symbol, "kind", Copy, kind)});
  }
  for (const char* symbol : {"cudaMemcpy3DPeer", "cudaMemcpy3DPeerAsync"}) {
    fields.insert(fields.end(), {PART(symbol, "dst", PeerCopy, dstPtr, cudaPitchedPtr, ptr),
                                 FIELD(symbol, "dst_device", PeerCopy, dstDevice),
                                 PART(symbol, "src", PeerCopy, srcPtr, cudaPitchedPtr, ptr),
                                 FIELD(symbol, "src_device", PeerCopy, srcDevice),
                                 PART(symbol, "width_bytes", PeerCopy, extent, cudaExtent, width),
                                 PART(symbol, "height", PeerCopy, extent, cudaExtent, height),
                                 PART(symbol, "depth", PeerCopy, extent, cudaExtent, depth)});
  }
  for (const char* symbol : {"cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2"}) {
    fields.insert(fields.end(), {FIELD(symbol, "from", CUDA_MEMCPY2D, srcMemoryType),
                                 FIELD(symbol, "to", CUDA_MEMCPY2D, dstMemoryType),
                                 FIELD(symbol, "width_bytes", CUDA_MEMCPY2D, WidthInBytes),
                                 FIELD(symbol, "height", CUDA_MEMCPY2D, Height)});
  }
  for (const char* symbol : {"cuMemcpy3D_v2", "cuMemcpy3DAsync_v2"}) {
    fields.insert(fields.end(), {FIELD(symbol, "from", CUDA_MEMCPY3D, srcMemoryType),
                                 FIELD(symbol, "to", CUDA_MEMCPY3D, dstMemoryType),
                                 FIELD(symbol, "width_bytes", CUDA_MEMCPY3D, WidthInBytes),
                                 FIELD(symbol, "height", CUDA_MEMCPY3D, Height),
                                 FIELD(symbol, "depth", CUDA_MEMCPY3D, Depth)});
  }
  for (const char* symbol : {"cuMemcpy3DPeer", "cuMemcpy3DPeerAsync"}) {
    fields.insert(fields.end(), {FIELD(symbol, "from", CUDA_MEMCPY3D_PEER, srcMemoryType),
                                 FIELD(symbol, "to", CUDA_MEMCPY3D_PEER, dstMemoryType),
                                 FIELD(symbol, "width_bytes", CUDA_MEMCPY3D_PEER, WidthInBytes),
                                 FIELD(symbol, "height", CUDA_MEMCPY3D_PEER, Height),
                                 FIELD(symbol, "depth", CUDA_MEMCPY3D_PEER, Depth)});
  }
  fields.insert(fields.end(),
                {FIELD("cuArrayCreate_v2", "width", CUDA_ARRAY_DESCRIPTOR, Width),
                 FIELD("cuArrayCreate_v2", "height", CUDA_ARRAY_DESCRIPTOR, Height),
                 FIELD("cuArrayCreate_v2", "format", CUDA_ARRAY_DESCRIPTOR, Format),
                 FIELD("cuArrayCreate_v2", "channels", CUDA_ARRAY_DESCRIPTOR, NumChannels)});
  for (const char* symbol : {"cuArray3DCreate_v2", "cuMipmappedArrayCreate"}) {
    fields.insert(fields.end(), {FIELD(symbol, "width", CUDA_ARRAY3D_DESCRIPTOR, Width),
                                 FIELD(symbol, "height", CUDA_ARRAY3D_DESCRIPTOR, Height),
                                 FIELD(symbol, "depth", CUDA_ARRAY3D_DESCRIPTOR, Depth),
                                 FIELD(symbol, "format", CUDA_ARRAY3D_DESCRIPTOR, Format),
                                 FIELD(symbol, "channels", CUDA_ARRAY3D_DESCRIPTOR, NumChannels),
                                 FIELD(symbol, "flags", CUDA_ARRAY3D_DESCRIPTOR, Flags)});
  }
  using Config = cudaLaunchConfig_t;
  using DriverConfig = CUlaunchConfig;
  constexpr const char* kExC = "cudaLaunchKernelExC";
  constexpr const char* kEx = "cuLaunchKernelEx";
  fields.insert(
      fields.end(),
      {PART(kExC, "grid", Config, gridDim, dim3, x), PART(kExC, "grid 2", Config, gridDim, dim3, y),
       PART(kExC, "grid 3", Config, gridDim, dim3, z),
       PART(kExC, "block", Config, blockDim, dim3, x),
       PART(kExC, "block 2", Config, blockDim, dim3, y),
       PART(kExC, "block 3", Config, blockDim, dim3, z),
       FIELD(kExC, "shared_bytes", Config, dynamicSmemBytes), FIELD(kExC, "stream", Config, stream),
       FIELD(kEx, "grid", DriverConfig, gridDimX), FIELD(kEx, "grid 2", DriverConfig, gridDimY),
       FIELD(kEx, "grid 3", DriverConfig, gridDimZ), FIELD(kEx, "block", DriverConfig, blockDimX),
       FIELD(kEx, "block 2", DriverConfig, blockDimY),
       FIELD(kEx, "block 3", DriverConfig, blockDimZ),
       FIELD(kEx, "shared_bytes", DriverConfig, sharedMemBytes),
       FIELD(kEx, "stream", DriverConfig, hStream)});
  return fields;
}

std::vector<NamedValue> named_codes() {
  std::vector<NamedValue> codes;
  const auto add = [&](const char* symbol, const char* field,
                       std::initializer_list<std::pair<int64_t, const char*>> names) {
    for (const auto& [code, name] : names) codes.push_back({symbol, field, code, name});
  };
  add("cudaMemcpy", "kind",
      {{cudaMemcpyHostToHost, "host_to_host"},
       {cudaMemcpyHostToDevice, "host_to_device"},
       {cudaMemcpyDeviceToHost, "device_to_host"},
       {cudaMemcpyDeviceToDevice, "device_to_device"},
       {cudaMemcpyDefault, "default"}});
  add("cuMemcpy2D_v2", "from",
      {{CU_MEMORYTYPE_HOST, "host"},
       {CU_MEMORYTYPE_DEVICE, "device"},
       {CU_MEMORYTYPE_ARRAY, "array"},
       {CU_MEMORYTYPE_UNIFIED, "unified"}});
  add("cublasGemmEx", "transa",
      {{CUBLAS_OP_N, "n"}, {CUBLAS_OP_T, "t"}, {CUBLAS_OP_C, "c"}, {CUBLAS_OP_CONJG, "conj"}});
  add("ncclAllReduce", "op",
      {{ncclSum, "sum"}, {ncclProd, "prod"}, {ncclMax, "max"}, {ncclMin, "min"}, {ncclAvg, "avg"}});
  add("ncclAllReduce", "type",
      {{ncclInt8, "i8"},
       {ncclUint8, "u8"},
       {ncclInt32, "i32"},
       {ncclUint32, "u32"},
       {ncclInt64, "i64"},
       {ncclUint64, "u64"},
       {ncclFloat16, "f16"},
       {ncclFloat32, "f32"},
       {ncclFloat64, "f64"},
       {ncclBfloat16, "bf16"},
       {ncclFloat8e4m3, "f8_e4m3"},
       {ncclFloat8e5m2, "f8_e5m2"}});
  add("cublasGemmEx", "a_type",
      {{CUDA_R_16F, "f16"},
       {CUDA_C_16F, "complex_f16"},
       {CUDA_R_16BF, "bf16"},
       {CUDA_C_16BF, "complex_bf16"},
       {CUDA_R_32F, "f32"},
       {CUDA_C_32F, "complex_f32"},
       {CUDA_R_64F, "f64"},
       {CUDA_C_64F, "complex_f64"},
       {CUDA_R_4I, "i4"},
       {CUDA_C_4I, "complex_i4"},
       {CUDA_R_4U, "u4"},
       {CUDA_C_4U, "complex_u4"},
       {CUDA_R_8I, "i8"},
       {CUDA_C_8I, "complex_i8"},
       {CUDA_R_8U, "u8"},
       {CUDA_C_8U, "complex_u8"},
       {CUDA_R_16I, "i16"},
       {CUDA_C_16I, "complex_i16"},
       {CUDA_R_16U, "u16"},
       {CUDA_C_16U, "complex_u16"},
       {CUDA_R_32I, "i32"},
       {CUDA_C_32I, "complex_i32"},
       {CUDA_R_32U, "u32"},
       {CUDA_C_32U, "complex_u32"},
       {CUDA_R_64I, "i64"},
       {CUDA_C_64I, "complex_i64"},
       {CUDA_R_64U, "u64"},
       {CUDA_C_64U, "complex_u64"},
       {CUDA_R_8F_E4M3, "f8_e4m3"},
       {CUDA_R_8F_E5M2, "f8_e5m2"},
       {CUDA_R_8F_UE8M0, "f8_ue8m0"},
       {CUDA_R_6F_E2M3, "f6_e2m3"},
       {CUDA_R_6F_E3M2, "f6_e3m2"},
       {CUDA_R_4F_E2M1, "f4_e2m1"}});
  add("cublasGemmEx", "compute",
      {{CUBLAS_COMPUTE_16F, "f16"},
       {CUBLAS_COMPUTE_16F_PEDANTIC, "f16_pedantic"},
       {CUBLAS_COMPUTE_32F, "f32"},
       {CUBLAS_COMPUTE_32F_PEDANTIC, "f32_pedantic"},
       {CUBLAS_COMPUTE_32F_FAST_16F, "f32_fast_f16"},
       {CUBLAS_COMPUTE_32F_FAST_16BF, "f32_fast_bf16"},
       {CUBLAS_COMPUTE_32F_FAST_TF32, "f32_fast_tf32"},
       {CUBLAS_COMPUTE_32F_EMULATED_16BFX9, "f32_emulated_bf16x9"},
       {CUBLAS_COMPUTE_64F, "f64"},
       {CUBLAS_COMPUTE_64F_PEDANTIC, "f64_pedantic"},
       {CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT, "f64_emulated_fixed_point"},
       {CUBLAS_COMPUTE_32I, "i32"},
       {CUBLAS_COMPUTE_32I_PEDANTIC, "i32_pedantic"}});
  return codes;
}

std::string why_no_headers() { return ""; }

#else

std::map<std::string, std::vector<Parameter>> read_signatures() { return {}; }
std::vector<MemoryField> memory_fields() { return {}; }
std::vector<NamedValue> named_codes() { return {}; }
std::string why_no_headers() {
  return "the headers of CUDA 13 (cuda.h, cublasLt.h) and NCCL 2.28 (nccl.h) are not all installed";
}

#endif

}  // namespace gpuperf
