#include "daemon/model/nccl_rows.h"

namespace gpuperf {
namespace {

constexpr std::array<std::string_view, kNcclOperations> kOperationNames = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all",   "broadcast",
    "reduce",     "gather",     "scatter",        "send_receive", "mixed"};
constexpr std::array<std::string_view, kNcclActivities> kActivityNames = {
    "unknown", "stopped", "running", "cpu_quota", "no_cpu",
    "io",      "lock",    "sleep",   "driver",    "other_wait"};

}  // namespace

std::string_view get_nccl_operation_name(NcclOperation operation) {
  return kOperationNames[static_cast<size_t>(operation)];
}
std::string_view get_nccl_activity_name(NcclActivity activity) {
  return kActivityNames[static_cast<size_t>(activity)];
}
std::string_view get_nccl_basis_name(NcclBasis basis) {
  return basis == NcclBasis::kGpu ? "gpu" : "host";
}

uint64_t get_nccl_message_bytes(NcclOperation operation, uint64_t bytes, uint32_t ranks) {
  switch (operation) {
    case NcclOperation::kAllGather:
    case NcclOperation::kReduceScatter:
    case NcclOperation::kAllToAll:
    case NcclOperation::kGather:
    case NcclOperation::kScatter:
      return ranks == 0 ? bytes : bytes * ranks;
    case NcclOperation::kAllReduce:
    case NcclOperation::kBroadcast:
    case NcclOperation::kReduce:
    case NcclOperation::kSendReceive:
    case NcclOperation::kMixed:
      return bytes;
  }
  return bytes;  // only reached with a value outside the enum
}

double get_nccl_bus_factor(NcclOperation operation, uint32_t ranks) {
  const double n = ranks;
  switch (operation) {
    case NcclOperation::kAllReduce:
      return ranks == 0 ? 0 : 2 * (n - 1) / n;
    case NcclOperation::kAllGather:
    case NcclOperation::kReduceScatter:
    case NcclOperation::kAllToAll:
    case NcclOperation::kGather:
    case NcclOperation::kScatter:
      return ranks == 0 ? 0 : (n - 1) / n;
    case NcclOperation::kBroadcast:
    case NcclOperation::kReduce:
    case NcclOperation::kSendReceive:
      return 1;
    case NcclOperation::kMixed:
      return 0;
  }
  return 0;  // only reached with a value outside the enum
}

}  // namespace gpuperf
