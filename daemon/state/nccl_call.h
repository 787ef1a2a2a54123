#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "daemon/model/event.h"
#include "daemon/model/function.h"
#include "daemon/model/nccl_rows.h"

namespace gpuperf {

enum class NcclCallKind { kOperation, kGroupStart, kGroupEnd, kCreate, kSplit, kDestroy };

// What a call of NCCL says. Fields that its kind does not have are 0.
struct NcclCall {
  NcclCallKind kind{};
  ProcessKey process;
  uint32_t tid = 0;
  uint32_t function_id = 0;
  uint64_t start_mono_ns = 0;
  uint64_t end_mono_ns = 0;
  uint64_t stack_id = 0;
  uint64_t comm = 0;  // of kCreate and kSplit the new one; 0 of kSplit = it is not part of one
  // kOperation
  NcclOperation operation{};
  uint64_t bytes = 0;    // count x size of the type
  bool is_send = false;  // of kSendReceive
  // kCreate
  uint32_t rank = 0;
  uint32_t ranks = 0;
  std::array<uint64_t, 3> unique_id{};  // the beginning of it: random, then an address
  // kSplit
  uint64_t parent = 0;
  int32_t color = 0;
  int32_t key = 0;
};

// Empty for a call that failed, one of another function, and one whose arguments could not be read.
std::optional<NcclCall> decode_nccl_call(const Function& function, const ReportedCall& call);

}  // namespace gpuperf
