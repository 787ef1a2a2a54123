#include "daemon/rpc/request_list.h"

#include <algorithm>

#include "daemon/rpc/row_filter.h"
#include "daemon/rpc/step_source.h"

namespace gpuperf {
namespace {

uint64_t get_unix_ns(const Clock& clock, uint64_t mono_ns) {
  return static_cast<uint64_t>(clock.unix_from_mono_ns(static_cast<int64_t>(mono_ns)));
}

void set_wait(const Clock& clock, const RequestWait& wait, v1::RequestWait& message) {
  if (wait.end_mono_ns == 0) return;
  message.set_duration_ns(get_duration_ns(wait));
  message.set_start_unix_ns(get_unix_ns(clock, wait.start_mono_ns));
  message.set_last_step_id(wait.last_step);
  message.set_steps(wait.steps);
  message.set_longest_step_id(wait.longest_step);
  message.set_longest_step_ns(wait.longest_ns);
  message.set_longest_step_phase(to_proto(wait.longest_phase));
  message.set_longest_step_tokens(wait.longest_tokens);
}

v1::Request to_proto(const Clock& clock, const RequestProcess& process, const Request& request) {
  v1::Request message;
  message.set_id(request.id);
  set_process(request.process, process.owner, message);
  message.set_tid(request.tid);
  message.set_start_unix_ns(get_unix_ns(clock, request.start_mono_ns));
  message.set_read_ns(request.read_mono_ns - request.start_mono_ns);
  message.set_duration_ns(request.last_mono_ns - request.start_mono_ns);
  message.set_open(request.is_open);
  message.set_parts(request.parts);
  message.set_bytes(request.bytes);
  set_wait(clock, request.first, *message.mutable_first());
  set_wait(clock, request.longest_gap, *message.mutable_longest_gap());
  message.set_longest_wait_ns(get_duration_ns(get_longest_wait(request)));
  message.set_threshold_ns(request.threshold_ns);
  message.set_slow(request.threshold_ns != 0);
  return message;
}

std::vector<const Request*> list_kept(const RequestProcess& process, bool slow_only) {
  if (slow_only) return list_once<Request>(process.slow);
  return list_once<Request>(process.slow, process.open, process.recent);
}

double get_rate(const Snapshot& snapshot, const RequestProcess& process) {
  const std::vector<const Request*> kept = list_kept(process, false);
  if (kept.empty()) return 0;
  const auto now_ns = static_cast<uint64_t>(snapshot.taken_mono_ns);
  const auto get_age_ns = [now_ns](const Request* request) {
    return now_ns - std::min(now_ns, request->start_mono_ns);
  };
  const auto is_recent = [&](const Request* request) {
    return get_age_ns(request) <= kRateWindowNs;
  };
  const uint64_t oldest_ns =
      process.recent.empty() ? kRateWindowNs : get_age_ns(&process.recent.front());
  return static_cast<double>(std::ranges::count_if(kept, is_recent)) * 1e9 /
         static_cast<double>(get_rate_span_ns(oldest_ns));
}

v1::RequestProcess to_proto(const Snapshot& snapshot, const RequestProcess& process) {
  v1::RequestProcess message;
  set_process(process.process, process.owner, message);
  message.set_exited(process.exited);
  message.set_requests(process.requests);
  message.set_open(static_cast<uint32_t>(process.open.size()));
  message.set_requests_per_second(get_rate(snapshot, process));
  const RequestTotals& totals = process.totals;
  message.set_first_p50_ns(totals.first.quantile_ns(0.5));
  message.set_first_p99_ns(totals.first.quantile_ns(0.99));
  message.set_gaps(totals.gaps.count());
  message.set_gap_p50_ns(totals.gaps.quantile_ns(0.5));
  message.set_gap_p99_ns(totals.gaps.quantile_ns(0.99));
  message.set_slow_requests(totals.slow);
  return message;
}

bool matches(const RowFilter& filter, const RequestProcess& process) {
  return filter.matches(process.process) && filter.matches(process.owner);
}

}  // namespace

std::vector<v1::RequestProcess> list_request_processes(const Snapshot& snapshot,
                                                       const v1::Filter& filter) {
  const RowFilter rows(filter);
  std::vector<v1::RequestProcess> processes;
  for (const auto& process : snapshot.requests.processes) {
    if (process->requests > 0 && matches(rows, *process)) {
      processes.push_back(to_proto(snapshot, *process));
    }
  }
  std::ranges::stable_sort(processes, [](const auto& a, const auto& b) {
    if (a.exited() != b.exited()) return b.exited();
    return a.requests_per_second() > b.requests_per_second();
  });
  return processes;
}

std::vector<v1::Request> list_requests(const Snapshot& snapshot, const Clock& clock,
                                       const v1::Filter& filter, bool slow_only) {
  const RowFilter rows(filter);
  std::vector<v1::Request> requests;
  for (const auto& process : snapshot.requests.processes) {
    if (!matches(rows, *process)) continue;
    for (const Request* request : list_kept(*process, slow_only)) {
      if (!rows.matches_age(get_duration_ns(get_longest_wait(*request)))) continue;
      v1::Request message = to_proto(clock, *process, *request);
      if (message.start_unix_ns() >= filter.since_unix_ns()) requests.push_back(std::move(message));
    }
  }
  std::ranges::sort(requests, [slow_only](const auto& a, const auto& b) {
    return slow_only ? a.longest_wait_ns() > b.longest_wait_ns() : a.id() > b.id();
  });
  return requests;
}

uint32_t count_held_up(const Snapshot& snapshot, uint64_t step_id) {
  uint32_t count = 0;
  for (const auto& process : snapshot.requests.processes) {
    for (const Request* request : list_kept(*process, false)) {
      if (get_longest_wait(*request).longest_step == step_id) ++count;
    }
  }
  return count;
}

}  // namespace gpuperf
