#include "daemon/session/thread_ids.h"

#include <chrono>
#include <string>

#include "daemon/base/proc_text.h"
#include "daemon/base/process_status.h"

namespace gpuperf {
namespace {

int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ThreadIds::ThreadIds(std::string_view proc_root, uint32_t pid, bool is_namespace_ours,
                     ThreadScanBudget& budget, uint32_t uid)
    : tasks_(get_proc_path(proc_root, pid, "task")),
      is_namespace_ours_(is_namespace_ours),
      holder_{.uid = uid, .pid = pid},
      budget_(budget) {}

uint32_t ThreadIds::find(uint32_t inner_tid) {
  if (inner_tid == 0 || is_namespace_ours_) return inner_tid;
  if (const auto known = known_.find(inner_tid); known != known_.end()) return known->second;
  if (looks_ >= kLooksPerMessage) return 0;
  if (!budget_.may_scan(now_ns())) return 0;
  ++looks_;
  if (known_.size() >= kMaxThreads) forget();
  scan();
  const auto found = known_.find(inner_tid);
  if (found != known_.end()) return found->second;
  remember(inner_tid, 0);
  return 0;
}

void ThreadIds::remember(uint32_t inner_tid, uint32_t tid) {
  const auto known = known_.find(inner_tid);
  if (known != known_.end()) {
    known->second = tid;
  } else if (known_.size() < kMaxThreads &&
             budget_.places().take(holder_) == Shares::Verdict::kTaken) {
    known_.emplace(inner_tid, tid);
  }
}

void ThreadIds::forget() {
  budget_.places().give_back(holder_, known_.size());
  known_.clear();
}

void ThreadIds::scan() {
  const int64_t start_ns = now_ns();
  // A folder of numbers, as /proc itself.
  const auto tids = list_pids(tasks_);
  size_t scanned = 0;
  for (const uint32_t tid : tids.ok() ? *tids : std::vector<uint32_t>()) {
    if (++scanned > kMaxScanned) break;
    const Result<std::string> status = read_status_text(tasks_ + "/" + std::to_string(tid));
    if (status.ok()) remember(parse_inner_id(*status, tid).id, tid);
  }
  budget_.note_scan(start_ns, now_ns());
}

}  // namespace gpuperf
