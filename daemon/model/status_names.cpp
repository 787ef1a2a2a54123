#include "daemon/model/status_names.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "daemon/model/status_tables.h"

namespace gpuperf {
namespace {

struct PrefixRow {
  std::string_view prefix;  // followed by an upper-case letter
  StatusKind kind;
};

constexpr PrefixRow kPrefixRows[] = {
    {"cuda", StatusKind::kCudaRuntime}, {"cu", StatusKind::kCudaDriver},
    {"cublas", StatusKind::kCublas},    {"cudnn", StatusKind::kCudnn},
    {"nccl", StatusKind::kNccl},        {"pnccl", StatusKind::kNccl},
};

// What carries one of those prefixes and returns something else than its own status: text, a
// version, a struct, nothing at all, or the status of an earlier call. Sorted.
constexpr std::string_view kNoStatus[] = {
    "cublasGetCudartVersion",
    "cublasGetError",
    "cublasGetStatusName",
    "cublasGetStatusString",
    "cublasLtDisableCpuInstructionsSetMask",
    "cublasLtGetCudartVersion",
    "cublasLtGetStatusName",
    "cublasLtGetStatusString",
    "cublasLtGetVersion",
    "cublasXerbla",
    "cudaCreateChannelDesc",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cudnnGetCudartVersion",
    "cudnnGetErrorString",
    "cudnnGetLastErrorString",
    "cudnnGetMaxDeviceVersion",
    "cudnnGetVersion",
    "ncclGetErrorString",
    "ncclGetLastError",
    "ncclLLA2ACalcSlots",
    "ncclResetDebugInit",
    "ncclTeamLsa",
    "ncclTeamRail",
    "ncclTeamRankToLsa",
    "ncclTeamRankToWorld",
    "ncclTeamWorld",
};
static_assert(std::ranges::is_sorted(kNoStatus));

// The first cuBLAS interface (cublas.h), still exported beside the one that returns a status
// ("cublasSgemm_v2"): "cublas", one of the types, one of the routines; it returns the result or
// nothing.
struct LegacyBlasRow {
  std::string_view types;     // separated by spaces
  std::string_view routines;  // separated by spaces
};

constexpr LegacyBlasRow kLegacyBlasRows[] = {
    {"S D C Z",
     "axpy copy gbmv gemm gemv rot rotg scal swap symm syr2k syrk tbmv tbsv tpmv tpsv trmm trmv "
     "trsm trsv"},
    {"S D", "asum dot ger nrm2 rotm rotmg sbmv spmv spr spr2 symv syr syr2"},
    {"C Z", "dotc dotu gerc geru hbmv hemm hemv her her2 her2k herk hpmv hpr hpr2"},
    {"Is Id Ic Iz", "amax amin"},
    {"Sc Dz", "asum nrm2"},
    {"Cs Zd", "rot scal"},
};

bool has_word(std::string_view words, std::string_view word) {
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

bool is_legacy_blas(std::string_view symbol) {
  constexpr std::string_view kPrefix = "cublas";
  if (!symbol.starts_with(kPrefix)) return false;
  const std::string_view name = symbol.substr(kPrefix.size());
  for (const LegacyBlasRow& row : kLegacyBlasRows) {
    for (size_t type_length = 1; type_length <= 2 && type_length < name.size(); ++type_length) {
      if (has_word(row.types, name.substr(0, type_length)) &&
          has_word(row.routines, name.substr(type_length))) {
        return true;
      }
    }
  }
  return false;
}

bool returns_no_status(std::string_view symbol) {
  // Every NCCL function is exported a second time with a "p" before its name.
  const std::string_view name = symbol.starts_with("pnccl") ? symbol.substr(1) : symbol;
  // cuFile (GPUDirect Storage) returns a struct or a number of bytes.
  return name.starts_with("cuFile") || std::ranges::binary_search(kNoStatus, name) ||
         is_legacy_blas(name);
}

std::span<const StatusName> names_of(StatusKind kind) {
  switch (kind) {
    case StatusKind::kNone:
      return {};
    case StatusKind::kCudaRuntime:
      return kCudaRuntimeNames;
    case StatusKind::kCudaDriver:
      return kCudaDriverNames;
    case StatusKind::kCublas:
      return kCublasNames;
    case StatusKind::kCudnn:
      return kCudnnNames;
    case StatusKind::kNccl:
      return kNcclNames;
  }
  return {};
}

}  // namespace

StatusKind find_status_kind(std::string_view symbol) {
  for (const PrefixRow& row : kPrefixRows) {
    if (!symbol.starts_with(row.prefix) || symbol.size() == row.prefix.size()) continue;
    const char next = symbol[row.prefix.size()];
    if (next < 'A' || next > 'Z') continue;
    return returns_no_status(symbol) ? StatusKind::kNone : row.kind;
  }
  return StatusKind::kNone;
}

std::vector<int32_t> get_benign_codes(StatusKind kind) {
  switch (kind) {
    case StatusKind::kNone:
    case StatusKind::kCublas:
      return {};
    case StatusKind::kCudaRuntime:  // cudaErrorNotReady
    case StatusKind::kCudaDriver:   // CUDA_ERROR_NOT_READY
      return {600};
    case StatusKind::kCudnn:  // CUDNN_STATUS_RUNTIME_IN_PROGRESS of cuDNN 9 and of cuDNN 8
      return {1006, 12};
    case StatusKind::kNccl:  // ncclInProgress
      return {7};
  }
  return {};
}

std::string get_status_name(StatusKind kind, int32_t code) {
  const std::span<const StatusName> names = names_of(kind);
  const auto found = std::ranges::lower_bound(names, code, {}, &StatusName::code);
  if (found == names.end() || found->code != code) return std::to_string(code);
  return std::string(found->name);
}

}  // namespace gpuperf
