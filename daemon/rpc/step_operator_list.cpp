#include "daemon/rpc/step_operator_list.h"

#include <algorithm>
#include <numeric>

#include "daemon/model/display_text.h"
#include "daemon/rpc/step_source.h"

namespace gpuperf {
namespace {

std::vector<const OperatorProcess*> list_processes(const Snapshot& snapshot,
                                                   const RowFilter& filter) {
  std::vector<const OperatorProcess*> found;
  for (const auto& row : snapshot.operators) {
    if (matches_step_row(snapshot, filter, row->process, row->function_id)) {
      found.push_back(row.get());
    }
  }
  std::ranges::stable_sort(found, {}, &OperatorProcess::exited);
  return found;
}

v1::ExpertLayer to_proto(const ExpertLayer& layer) {
  v1::ExpertLayer message;
  message.set_layer(to_valid_utf8(layer.layer));
  message.set_tokens(layer.tokens);
  message.set_read_tokens(layer.read_tokens);
  std::vector<uint64_t> tokens = layer.expert_tokens;
  tokens.resize(std::max<size_t>(tokens.size(), layer.expert_count));
  message.mutable_expert_tokens()->Add(tokens.begin(), tokens.end());
  message.set_unused_experts(static_cast<uint32_t>(std::ranges::count(tokens, 0u)));
  const uint64_t all = std::accumulate(tokens.begin(), tokens.end(), uint64_t{0});
  if (all == 0) return message;
  const auto busiest = std::ranges::max_element(tokens);
  message.set_busiest_expert(static_cast<uint32_t>(busiest - tokens.begin()));
  message.set_imbalance(static_cast<double>(*busiest) * static_cast<double>(tokens.size()) /
                        static_cast<double>(all));
  return message;
}

}  // namespace

std::vector<v1::StepOperator> list_step_operators(const Snapshot& snapshot,
                                                  const RowFilter& filter) {
  std::vector<v1::StepOperator> rows;
  for (const OperatorProcess* process : list_processes(snapshot, filter)) {
    uint64_t all_ns = 0;
    for (const OperatorRow& row : process->operators) all_ns += row.total_ns;
    std::vector<OperatorRow> kinds = process->operators;
    if (process->other_calls > 0) kinds.push_back({.calls = process->other_calls});
    for (const OperatorRow& kind : kinds) {
      v1::StepOperator& row = rows.emplace_back();
      set_step_source(snapshot, process->process, process->function_id, row);
      row.set_exited(process->exited);
      row.set_operation(to_valid_utf8(kind.operation));
      row.set_tensor(to_valid_utf8(kind.tensor));
      row.set_calls(kind.calls);
      row.set_timed_calls(kind.timed_calls);
      row.set_total_ns(kind.total_ns);
      if (all_ns > 0) {
        row.set_time_ratio(static_cast<double>(kind.total_ns) / static_cast<double>(all_ns));
      }
    }
  }
  return rows;
}

std::vector<v1::ExpertLayer> list_step_experts(const Snapshot& snapshot, const RowFilter& filter) {
  std::vector<v1::ExpertLayer> rows;
  for (const OperatorProcess* process : list_processes(snapshot, filter)) {
    for (const ExpertLayer& layer : process->layers) {
      v1::ExpertLayer& row = rows.emplace_back(to_proto(layer));
      set_step_source(snapshot, process->process, process->function_id, row);
      row.set_exited(process->exited);
    }
  }
  return rows;
}

}  // namespace gpuperf
