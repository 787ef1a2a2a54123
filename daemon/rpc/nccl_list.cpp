#include "daemon/rpc/nccl_list.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>
#include <string>

#include "daemon/model/display_text.h"
#include "daemon/model/nccl_verdict.h"
#include "daemon/model/session_names.h"
#include "daemon/model/time_split.h"
#include "daemon/rpc/nccl_words.h"
#include "daemon/rpc/stack_to_proto.h"
#include "daemon/rpc/to_proto.h"

namespace gpuperf {
namespace {

constexpr size_t kByHost = static_cast<size_t>(NcclBasis::kHost);
constexpr size_t kByGpu = static_cast<size_t>(NcclBasis::kGpu);

void set_calls(const Snapshot& snapshot, const NcclRankRow& row, int64_t now_mono_ns,
               v1::NcclRank& rank) {
  rank.set_last_call(get_nccl_call_name(snapshot, row.last_function_id));
  const auto now_ns = static_cast<uint64_t>(now_mono_ns);
  if (row.last_start_mono_ns != 0) {
    rank.set_last_call_age_ns(now_ns - std::min(now_ns, row.last_start_mono_ns));
  }
  if (const InFlightCall* call = find_nccl_call(snapshot, row)) {
    rank.set_in_flight_call(get_nccl_call_name(snapshot, call->function_id));
    rank.set_in_flight_ns(get_age_ns(*snapshot.in_flight, *call));
  }
  for (size_t i = 0; i < row.operations.size(); ++i) {
    const NcclRankTotals& totals = row.operations[i];
    if (totals.calls == 0) continue;
    v1::NcclRankOperation& operation = *rank.add_operations();
    operation.set_operation(std::string(get_nccl_operation_name(static_cast<NcclOperation>(i))));
    operation.set_calls(totals.calls);
    operation.set_bytes(totals.bytes);
    operation.set_host_ns(totals.host_ns);
    operation.set_timed_calls(totals.timed_calls);
    operation.set_gpu_ns(totals.gpu_ns);
  }
}

v1::NcclRank to_proto(const Snapshot& snapshot, const NcclRankRow& row, int64_t now_mono_ns) {
  v1::NcclRank rank;
  if (row.rank) rank.set_rank(*row.rank);
  rank.set_rank_inferred(row.is_rank_inferred);
  rank.set_pid(row.process.pid);
  rank.set_tid(row.tid);
  rank.set_comm(to_valid_utf8(get_owner(snapshot, row.process).comm));
  if (const GpuActivity* gpu = find_nccl_gpu(snapshot, row.process)) {
    rank.set_gpu_uuid(format_gpu_uuid(gpu->uuid));
  }
  rank.set_collectives(row.collectives);
  rank.set_activity(std::string(get_nccl_activity_name(row.activity)));
  if (row.syscall != UINT32_MAX) {
    rank.set_syscall(get_syscall_name(static_cast<int32_t>(row.syscall)));
  }
  rank.set_host_waited_ns(row.waited_ns[kByHost]);
  rank.set_gpu_waited_ns(row.waited_ns[kByGpu]);
  rank.set_host_caused_ns(row.caused_ns[kByHost]);
  rank.set_gpu_caused_ns(row.caused_ns[kByGpu]);
  set_calls(snapshot, row, now_mono_ns, rank);
  return rank;
}

v1::NcclSize to_proto(const NcclSizeRow& row, uint32_t ranks) {
  v1::NcclSize size;
  size.set_operation(std::string(get_nccl_operation_name(row.operation)));
  size.set_size_bytes(row.size_bytes);
  size.set_count(row.count);
  size.set_bytes(row.bytes);
  size.set_timed(row.timed);
  size.set_gpu_ns(row.timed_ns);
  size.set_min_ns(row.min_ns);
  if (row.timed_ns == 0) return size;
  const double bandwidth =
      static_cast<double>(row.timed_bytes) * 1e9 / static_cast<double>(row.timed_ns);
  size.set_algorithm_bandwidth(bandwidth);
  size.set_bus_bandwidth(bandwidth * get_nccl_bus_factor(row.operation, ranks));
  return size;
}

// Equal stacks are one object.
void add_stacks(const Snapshot& snapshot, const NcclCommunicatorRow& row,
                const NcclVerdict& verdict, v1::NcclCommunicator& message) {
  std::vector<StackPtr> seen;
  for (size_t i = 0; i < row.local_ranks.size(); ++i) {
    const NcclRankRow& rank = row.local_ranks[i];
    const StackPtr stack = find_named_stack(snapshot, rank.last_stack_id);
    const bool is_odd =
        row.stall ? std::ranges::count(row.stall->missing_ranks, i) > 0 : i == verdict.rank_index;
    auto same = std::ranges::find(seen, stack);
    if (same == seen.end()) {
      seen.push_back(stack);
      same = seen.end() - 1;
      add_frames(get_frames(stack), *message.add_stacks()->mutable_frames());
    }
    v1::NcclStack& group = *message.mutable_stacks(static_cast<int>(same - seen.begin()));
    group.add_ranks(describe_nccl_rank(rank));
    if (is_odd) group.set_odd(true);
  }
}

void set_verdict(const Snapshot& snapshot, const NcclCommunicatorRow& row, int64_t now_mono_ns,
                 v1::NcclCommunicator& message) {
  message.set_state(v1::NCCL_STATE_OK);
  const auto verdict = judge_nccl(row, now_mono_ns);
  if (!verdict) return;
  const NcclRankRow& rank = row.local_ranks[verdict->rank_index];
  message.set_state(verdict->is_stuck ? v1::NCCL_STATE_STUCK : v1::NCCL_STATE_LATE);
  message.set_verdict(describe_nccl(snapshot, row, *verdict));
  for (std::string& line : list_nccl_evidence(snapshot, row, *verdict, now_mono_ns)) {
    message.add_evidence(std::move(line));
  }
  if (rank.rank) message.set_late_rank(*rank.rank);
  message.set_late_pid(rank.process.pid);
  message.set_cause(verdict->cause);
  message.set_late_ratio(verdict->late_ratio);
  message.set_by_kernels(!verdict->is_stuck && row.lateness->basis == NcclBasis::kGpu);
  message.set_stuck_ns(verdict->stuck_ns);
  add_stacks(snapshot, row, *verdict, message);
}

v1::NcclCommunicator to_proto(const Snapshot& snapshot, const NcclCommunicatorRow& row,
                              int64_t now_mono_ns) {
  v1::NcclCommunicator message;
  message.set_id(fmt::format("{:016x}", row.id));
  message.set_identified(row.is_identified);
  message.set_ranks(row.ranks);
  message.set_ranks_inferred(row.is_size_inferred);
  message.set_in_step(row.is_in_step);
  for (const NcclRankRow& rank : row.local_ranks) {
    *message.add_local_ranks() = to_proto(snapshot, rank, now_mono_ns);
  }
  for (const NcclSizeRow& size : row.sizes) *message.add_sizes() = to_proto(size, row.ranks);
  set_verdict(snapshot, row, now_mono_ns, message);
  return message;
}

}  // namespace

std::vector<v1::NcclCommunicator> list_nccl(const Snapshot& snapshot, const RowFilter& filter,
                                            int64_t now_mono_ns) {
  std::vector<v1::NcclCommunicator> communicators;
  for (const auto& row : snapshot.nccl.communicators) {
    const bool is_wanted = std::ranges::any_of(row->local_ranks, [&](const NcclRankRow& rank) {
      return filter.matches(rank.process) && filter.matches(get_owner(snapshot, rank.process));
    });
    if (is_wanted) communicators.push_back(to_proto(snapshot, *row, now_mono_ns));
  }
  std::ranges::stable_sort(communicators, std::ranges::greater(), &v1::NcclCommunicator::state);
  return communicators;
}

}  // namespace gpuperf
