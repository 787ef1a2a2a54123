#include "daemon/state/requests.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/state/exited_rows.h"
#include "daemon/state/newest_rows.h"

namespace gpuperf {
namespace {

// What takes at least so long is slow; 0 = not known yet.
uint64_t get_threshold_ns(const Histogram& waits) {
  if (waits.count() < Requests::kSlowMinWaits) return 0;
  return Requests::kSlowFactor * waits.quantile_ns(0.5);
}

void add_wait(uint64_t duration_ns, Histogram& waits, uint64_t& total_ns) {
  waits.add(bucket_of(duration_ns), 1);
  total_ns += duration_ns;
}

// Adds the steps of one process.
void add_steps(const StepProcess& row, uint64_t& last_mono_ns, RequestWait& wait) {
  for (auto step = row.recent.rbegin(); step != row.recent.rend(); ++step) {
    if (step->completed_mono_ns > wait.end_mono_ns) continue;
    if (step->completed_mono_ns > last_mono_ns) {
      last_mono_ns = step->completed_mono_ns;
      wait.last_step = step->id;
    }
    if (step->completed_mono_ns <= wait.start_mono_ns) return;  // as are those before it
    ++wait.steps;
    if (get_duration_ns(*step) <= wait.longest_ns) continue;
    wait.longest_step = step->id;
    wait.longest_ns = get_duration_ns(*step);
    wait.longest_phase = step->phase;
    wait.longest_tokens = step->tokens.value;
  }
}

}  // namespace

void Requests::apply(const std::vector<ResponsePart>& parts) {
  loop_thread_.check();
  for (const ResponsePart& part : parts) take(part);
}

void Requests::take(const ResponsePart& part) {
  Process* process = find_or_add(part.process, static_cast<int64_t>(part.mono_ns));
  if (process == nullptr) return drops_.add(DropCause::kRequestsFull);
  process->made.reset();
  auto open = process->open.find(part.connection);
  if (open != process->open.end() && (part.begins || part.is_closed)) {
    end(*process, open);
    open = process->open.end();
  }
  if (part.is_closed) return;
  if (part.begins && !begin(*process, part)) return drops_.add(DropCause::kRequestsFull);
  open = process->open.find(part.connection);
  if (open == process->open.end()) return;  // its beginning was not seen
  Request& request = open->second;
  request.bytes += part.bytes;
  if (part.has_body) add_wait(*process, part, request);
  request.last_mono_ns = part.mono_ns;
  if (part.ends) end(*process, open);
}

bool Requests::begin(Process& process, const ResponsePart& part) {
  if (process.open.size() >= kMaxOpen) return false;
  process.row.owner = part.owner;
  ++process.row.requests;
  process.open[part.connection] = {.id = ++last_id_,
                                   .process = part.process,
                                   .tid = part.tid,
                                   .start_mono_ns = part.request_start_mono_ns,
                                   .read_mono_ns = part.request_end_mono_ns,
                                   .last_mono_ns = part.mono_ns};
  return true;
}

void Requests::add_wait(Process& process, const ResponsePart& part, Request& request) {
  const bool is_first = request.parts == 0;
  const uint64_t since_ns = is_first ? request.read_mono_ns : request.last_mono_ns;
  const uint64_t waited_ns = part.mono_ns - std::min(since_ns, part.mono_ns);
  if (!is_first && waited_ns < kJoinNs) return;
  ++request.parts;
  RequestTotals& totals = process.row.totals;
  Histogram& waits = is_first ? totals.first : totals.gaps;
  const uint64_t threshold_ns = get_threshold_ns(waits);
  gpuperf::add_wait(waited_ns, waits, is_first ? totals.first_ns : totals.gaps_ns);
  gpuperf::add_wait(waited_ns, is_first ? totals_.first : totals_.gaps,
                    is_first ? totals_.first_ns : totals_.gaps_ns);
  if (is_first) {
    request.first = describe_wait(part, since_ns);
  } else if (waited_ns > get_duration_ns(request.longest_gap)) {
    request.longest_gap = describe_wait(part, since_ns);
  }
  if (threshold_ns != 0 && waited_ns >= threshold_ns) request.threshold_ns = threshold_ns;
}

// Steps of the process itself; of one without, as a server before the processes of its engine,
// those of its session.
RequestWait Requests::describe_wait(const ResponsePart& part, uint64_t start_mono_ns) const {
  RequestWait wait{.start_mono_ns = start_mono_ns, .end_mono_ns = part.mono_ns};
  uint64_t last_mono_ns = 0;
  const StepProcess* const own = steps_.find(part.process);
  if (own != nullptr && !own->recent.empty()) {
    add_steps(*own, last_mono_ns, wait);
    return wait;
  }
  for (const auto& [process, session] : sessions_) {
    if (session != part.session) continue;
    const StepProcess* const row = steps_.find(process);
    if (row != nullptr) add_steps(*row, last_mono_ns, wait);
  }
  return wait;
}

void Requests::end(Process& process, Open::iterator request) {
  Request& ended = request->second;
  ended.is_open = false;
  keep_newest(process.row.recent, ended, kRecent);
  if (ended.threshold_ns != 0) {
    ++process.row.totals.slow;
    ++totals_.slow;
    keep_newest(process.row.slow, ended, kSlow);
  }
  process.open.erase(request);
}

Requests::Process* Requests::find_or_add(const ProcessKey& key, int64_t now_mono_ns) {
  const auto known = processes_.find(key);
  if (known != processes_.end()) return &known->second;
  if (!make_room(processes_, kMaxProcesses)) return nullptr;
  Process& process = processes_[key];
  process.row.process = key;
  if (exited_.contains(key)) {
    process.row.exited = true;
    process.exited_mono_ns = now_mono_ns;
  }
  return &process;
}

void Requests::apply(const ProcessExited& exited, int64_t now_mono_ns) {
  loop_thread_.check();
  exited_.add(exited.process);
  const auto found = processes_.find(exited.process);
  if (found == processes_.end()) return;
  Process& process = found->second;
  while (!process.open.empty()) end(process, process.open.begin());
  process.row.exited = true;
  process.exited_mono_ns = now_mono_ns;
  process.made.reset();
}

void Requests::expire(int64_t now_mono_ns) {
  loop_thread_.check();
  erase_exited(processes_, keep_exited_, now_mono_ns);
}

void Requests::fill(Snapshot& snapshot) const {
  snapshot.self.add(Bound::kRequestProcesses, processes_.size(), kMaxProcesses);
  size_t most_open = 0;
  for (const auto& [key, process] : processes_) {
    most_open = std::max(most_open, process.open.size());
    if (process.made == nullptr) {
      auto row = std::make_shared<RequestProcess>(process.row);
      for (const auto& [connection, request] : process.open) row->open.push_back(request);
      std::ranges::sort(row->open, {}, &Request::id);
      process.made = std::move(row);
    }
    snapshot.requests.processes.push_back(process.made);
  }
  snapshot.self.add(Bound::kOpenRequests, most_open, kMaxOpen);
  snapshot.requests.totals = totals_;
}

}  // namespace gpuperf
