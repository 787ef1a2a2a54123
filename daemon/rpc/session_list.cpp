#include "daemon/rpc/session_list.h"

#include <algorithm>
#include <set>

#include "daemon/model/session_names.h"
#include "daemon/rpc/gpu_to_proto.h"

namespace gpuperf {
namespace {

const GpuProcessRow* find_process(const GpuReport& report, const ProcessKey& process) {
  const auto found = std::ranges::lower_bound(report.processes, process, {},
                                              [](const auto& row) { return row->process; });
  return found == report.processes.end() || (*found)->process != process ? nullptr : found->get();
}

}  // namespace

std::vector<v1::Session> list_sessions(const Snapshot& snapshot, const RowFilter& filter,
                                       bool include_closed, int64_t now_mono_ns) {
  std::vector<v1::Session> sessions;
  std::set<ProcessKey> seen;
  for (const auto& row : snapshot.gpu.sessions) {
    const ProcessKey& process = row->facts.process;
    const bool is_newest = seen.insert(process).second;
    if (!row->open && !include_closed) continue;
    if (!filter.matches(process) || !filter.matches(row->facts.owner)) continue;
    sessions.push_back(
        to_proto(*row, is_newest ? find_process(snapshot.gpu, process) : nullptr, now_mono_ns));
  }
  return sessions;
}

std::map<ProcessKey, std::string_view, ProcessOrder> get_session_states(const GpuReport& report) {
  std::map<ProcessKey, std::string_view, ProcessOrder> states;
  for (const auto& row : report.sessions) {
    states.try_emplace(row->facts.process,
                       row->open ? get_session_state_name(row->status.state) : "closed");
  }
  return states;
}

std::vector<ProcessRow> list_processes(const Snapshot& snapshot, const RowFilter& filter) {
  std::vector<ProcessRow> rows = snapshot.processes;  // ordered by key
  const size_t known = rows.size();
  for (const auto& process : snapshot.gpu.processes) {
    const bool is_known = std::ranges::binary_search(
        rows.begin(), rows.begin() + known, process->process, ProcessOrder(), &ProcessRow::process);
    if (is_known) continue;
    rows.push_back(
        {.process = process->process, .owner = process->owner, .exited = process->exited});
  }
  std::erase_if(rows, [&](const ProcessRow& row) {
    return !filter.matches(row.process) || !filter.matches(row.owner);
  });
  std::ranges::sort(rows, {}, &ProcessRow::process);
  std::stable_partition(rows.begin(), rows.end(),
                        [](const ProcessRow& row) { return !row.exited; });
  return rows;
}

}  // namespace gpuperf
