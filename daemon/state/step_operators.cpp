#include "daemon/state/step_operators.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "daemon/state/exited_rows.h"

namespace gpuperf {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "12" of "ffn_moe_down-12"; the name where it has no number.
std::string get_layer(const std::string& name) {
  const size_t dash = name.rfind('-');
  const bool has_number =
      dash != std::string::npos && dash + 1 < name.size() &&
      std::all_of(name.begin() + static_cast<ptrdiff_t>(dash) + 1, name.end(), is_digit);
  return has_number ? name.substr(dash + 1) : name;
}

// Layer 2 before layer 10.
bool comes_before(const ExpertLayer& a, const ExpertLayer& b) {
  if (a.layer.size() != b.layer.size()) return a.layer.size() < b.layer.size();
  return a.layer < b.layer;
}

}  // namespace

std::string get_tensor_kind(const std::string& name) {
  std::string kind;
  for (size_t i = 0; i < name.size(); ++i) {
    const std::string_view before = std::string_view(name).substr(0, i);
    const bool begins = is_digit(name[i]) && (before.ends_with('-') || before.ends_with('_') ||
                                              before.ends_with('.') || before.ends_with("_l"));
    if (!begins) {
      kind += name[i];
      continue;
    }
    while (i + 1 < name.size() && is_digit(name[i + 1])) ++i;
    kind += 'N';
  }
  return kind;
}

void StepOperators::apply(const ReportedCalls& calls, const FunctionList& functions) {
  loop_thread_.check();
  for (const ReportedCall& call : calls.calls) {
    const StepRole role = get_step_role(functions, call.function_id);
    if (role == StepRole::kPart || is_step(role)) {
      const auto known = processes_.find(call.process);
      if (known != processes_.end()) end_step(call, known->second);
      continue;
    }
    if (role != StepRole::kOperator) continue;
    Process* process = find_or_add(call.process, static_cast<int64_t>(call.start_mono_ns));
    if (process == nullptr) {
      drops_.add(DropCause::kStepsProcessesFull);
      continue;
    }
    process->function_id = call.function_id;
    process->row = nullptr;
    if (call.operator_call != nullptr) take_operator(call, *process);
    if (call.routing != nullptr) take_routing(*call.routing, *process);
  }
}

void StepOperators::take_operator(const ReportedCall& call, Process& process) const {
  const OperatorCall& op = *call.operator_call;
  std::pair key(layouts_.get_operation(op.layout, op.operation), get_tensor_kind(op.name));
  auto kind = process.kinds.find(key);
  if (kind == process.kinds.end() && process.kinds.size() < kMaxKinds) {
    kind = process.kinds.try_emplace(std::move(key)).first;
  }
  if (!process.threads.contains(call.tid) && process.threads.size() >= kMaxThreads) {
    process.threads.clear();  // which loses the time of one operator each
  }
  Open& open = process.threads[call.tid];
  const bool is_followed = open.kind != nullptr && open.lost == op.lost &&
                           call.start_mono_ns >= open.start_mono_ns &&
                           call.start_mono_ns - open.start_mono_ns <= kMaxOperatorNs;
  if (is_followed) {
    open.kind->followed += 1;
    open.kind->followed_ns += call.start_mono_ns - open.start_mono_ns;
  }
  if (kind == process.kinds.end()) {
    process.other_calls += 1;
    open = {};
    return;
  }
  kind->second.calls += 1;
  open = {.kind = &kind->second, .start_mono_ns = call.start_mono_ns, .lost = op.lost};
}

// Calls that end within microseconds of each other may come in any order.
void StepOperators::end_step(const ReportedCall& call, Process& process) {
  const auto open = process.threads.find(call.tid);
  const uint64_t end_ns = call.start_mono_ns + call.duration_ns;
  if (open == process.threads.end() || open->second.start_mono_ns > end_ns) return;
  const uint64_t ns = end_ns - open->second.start_mono_ns;
  if (open->second.kind != nullptr && ns <= kMaxOperatorNs) {
    open->second.kind->last += 1;
    open->second.kind->last_ns += ns;
    process.row = nullptr;
  }
  process.threads.erase(open);
}

void StepOperators::take_routing(const Routing& routing, Process& process) {
  const std::string name = get_layer(routing.name);
  const auto known = process.layers.find(name);
  if (known == process.layers.end() && process.layers.size() >= kMaxLayers) {
    process.other_tokens += routing.tokens;
    return;
  }
  ExpertLayer& layer = process.layers[name];
  layer.layer = name;
  layer.tokens += routing.tokens;
  layer.read_tokens += routing.read_tokens;
  layer.expert_count =
      std::min(std::max(layer.expert_count, routing.expert_count), uint32_t{kMaxExperts});
  for (const int32_t expert : routing.experts) {
    const auto index = static_cast<size_t>(expert);
    const size_t had = layer.expert_tokens.size();
    const size_t more = index < had ? 0 : index + 1 - had;
    if (expert < 0 || index >= kMaxExperts || process.counters + more > kMaxCounters) {
      process.other_tokens += 1;
      continue;
    }
    process.counters += more;
    layer.expert_tokens.resize(had + more);
    layer.expert_tokens[index] += 1;
  }
}

void StepOperators::apply(const ProcessExited& exited, int64_t now_mono_ns) {
  loop_thread_.check();
  exited_.add(exited.process);
  const auto known = processes_.find(exited.process);
  if (known == processes_.end()) return;
  known->second.threads.clear();
  known->second.exited_mono_ns = now_mono_ns;
  known->second.row = nullptr;
}

void StepOperators::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  erase_exited(processes_, keep_exited_, now_mono_ns);
}

void StepOperators::fill(Snapshot& snapshot) const {
  snapshot.self.add(Bound::kOperatorProcesses, processes_.size(), kMaxProcesses);
  for (const auto& [key, process] : processes_) {
    if (process.row == nullptr) {
      process.row = std::make_shared<const OperatorProcess>(make_row(key, process));
    }
    snapshot.operators.push_back(process.row);
  }
}

StepOperators::Process* StepOperators::find_or_add(const ProcessKey& key, int64_t now_mono_ns) {
  const auto known = processes_.find(key);
  if (known != processes_.end()) return &known->second;
  if (!make_room(processes_, kMaxProcesses)) return nullptr;
  Process& process = processes_[key];
  // A routing has no time; 0 would mean that it runs.
  if (exited_.contains(key)) process.exited_mono_ns = std::max<int64_t>(now_mono_ns, 1);
  return &process;
}

OperatorProcess StepOperators::make_row(const ProcessKey& key, const Process& process) {
  OperatorProcess row{.process = key,
                      .exited = process.exited_mono_ns != 0,
                      .function_id = process.function_id,
                      .other_calls = process.other_calls,
                      .other_tokens = process.other_tokens};
  for (const auto& [name, kind] : process.kinds) {
    const bool is_last = kind.followed == 0;  // of its graph
    row.operators.push_back({.operation = name.first,
                             .tensor = name.second,
                             .calls = kind.calls,
                             .timed_calls = is_last ? kind.last : kind.followed,
                             .total_ns = is_last ? kind.last_ns : kind.followed_ns});
  }
  std::ranges::stable_sort(row.operators, std::ranges::greater(), &OperatorRow::total_ns);
  for (const auto& [name, layer] : process.layers) row.layers.push_back(layer);
  std::ranges::stable_sort(row.layers, comes_before);
  return row;
}

}  // namespace gpuperf
