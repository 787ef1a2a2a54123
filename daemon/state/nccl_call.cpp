#include "daemon/state/nccl_call.h"

#include <algorithm>
#include <string_view>

#include "daemon/model/data_types.h"

namespace gpuperf {
namespace {

constexpr int32_t kSuccess = 0;
constexpr int32_t kInProgress = 7;  // of communicators that do not block

struct OperationRow {
  std::string_view symbol;
  NcclOperation operation;
  std::string_view count;  // name of the argument
};
constexpr OperationRow kOperationRows[] = {
    {"ncclAllReduce", NcclOperation::kAllReduce, "count"},
    {"ncclAllGather", NcclOperation::kAllGather, "sendcount"},
    {"ncclReduceScatter", NcclOperation::kReduceScatter, "recvcount"},
    {"ncclAlltoAll", NcclOperation::kAllToAll, "count"},
    {"ncclBroadcast", NcclOperation::kBroadcast, "count"},
    {"ncclBcast", NcclOperation::kBroadcast, "count"},
    {"ncclReduce", NcclOperation::kReduce, "count"},
    {"ncclGather", NcclOperation::kGather, "count"},
    {"ncclScatter", NcclOperation::kScatter, "count"},
    {"ncclSend", NcclOperation::kSendReceive, "count"},
    {"ncclRecv", NcclOperation::kSendReceive, "count"},
};

// The values of a call by the names of its plan.
class Arguments {
 public:
  Arguments(const Function& function, const ReportedCall& call)
      : function_(function), call_(call) {}

  std::optional<uint64_t> find(std::string_view name, size_t further = 0) const {
    if (function_.arguments == nullptr) return std::nullopt;
    const auto& fields = function_.arguments->fields;
    const auto field = std::ranges::find(fields, name, &ArgumentField::name);
    const auto at = static_cast<size_t>(field - fields.begin()) + further;
    if (at >= std::min<size_t>(fields.size(), GPUPERF_VALUES)) return std::nullopt;
    if (!call_.values || (call_.values->unread >> at & 1) != 0) return std::nullopt;
    return call_.values->values[at];
  }

 private:
  const Function& function_;
  const ReportedCall& call_;
};

uint64_t get_type_bytes(uint64_t type) {
  for (const NcclTypeBytes& row : nccl_type_bytes()) {
    if (row.code == type) return row.element_bytes;
  }
  return 0;
}

bool decode_operation(const OperationRow& row, const Arguments& arguments, NcclCall& call) {
  const auto count = arguments.find(row.count);
  const auto type = arguments.find("type");
  const auto comm = arguments.find("comm");
  if (!count || !type || !comm) return false;
  call.kind = NcclCallKind::kOperation;
  call.operation = row.operation;
  call.is_send = row.symbol == "ncclSend";
  call.comm = *comm;
  call.bytes = *count * get_type_bytes(static_cast<uint32_t>(*type));
  return true;
}

bool decode_create(const Arguments& arguments, uint64_t result, NcclCall& call) {
  const auto rank = arguments.find("rank");
  const auto ranks = arguments.find("ranks");
  if (!rank || !ranks || result == 0) return false;
  call.kind = NcclCallKind::kCreate;
  call.comm = result;
  call.rank = static_cast<uint32_t>(*rank);
  call.ranks = static_cast<uint32_t>(*ranks);
  for (size_t i = 0; i < call.unique_id.size(); ++i) {
    const auto part = arguments.find("unique_id", i);
    if (!part) return false;
    call.unique_id[i] = *part;
  }
  return true;
}

bool decode_split(const Arguments& arguments, uint64_t result, NcclCall& call) {
  const auto parent = arguments.find("comm");
  const auto color = arguments.find("color");
  const auto key = arguments.find("key");
  if (!parent || !color || !key) return false;
  call.kind = NcclCallKind::kSplit;
  call.parent = *parent;
  call.color = static_cast<int32_t>(*color);
  call.key = static_cast<int32_t>(*key);
  call.comm = result;
  return true;
}

bool decode(std::string_view symbol, const Arguments& arguments, uint64_t result, NcclCall& call) {
  if (const auto row = std::ranges::find(kOperationRows, symbol, &OperationRow::symbol);
      row != std::end(kOperationRows)) {
    return decode_operation(*row, arguments, call);
  }
  if (symbol.starts_with("ncclCommInitRank")) return decode_create(arguments, result, call);
  if (symbol == "ncclCommSplit") return decode_split(arguments, result, call);
  if (symbol == "ncclCommDestroy" || symbol == "ncclCommAbort") {
    call.kind = NcclCallKind::kDestroy;
    call.comm = arguments.find("comm").value_or(0);
    return true;
  }
  return false;
}

}  // namespace

std::optional<NcclCall> decode_nccl_call(const Function& function, const ReportedCall& reported) {
  NcclCall call{.process = reported.process,
                .tid = reported.tid,
                .function_id = reported.function_id,
                .start_mono_ns = reported.start_mono_ns,
                .end_mono_ns = reported.start_mono_ns + reported.duration_ns,
                .stack_id = reported.stack_id};
  // A group is open or closed also where that failed.
  if (function.symbol == "ncclGroupStart" || function.symbol == "ncclGroupEnd") {
    call.kind =
        function.symbol == "ncclGroupEnd" ? NcclCallKind::kGroupEnd : NcclCallKind::kGroupStart;
    return call;
  }
  const auto status = static_cast<int32_t>(reported.return_value.value_or(kSuccess));
  if (status != kSuccess && status != kInProgress) return std::nullopt;
  if (!decode(function.symbol, Arguments(function, reported), reported.result, call)) {
    return std::nullopt;
  }
  return call;
}

}  // namespace gpuperf
