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
                     ThreadScanBudget& budget)
    : tasks_(get_proc_path(proc_root, pid, "task")),
      is_namespace_ours_(is_namespace_ours),
      budget_(budget) {}

uint32_t ThreadIds::find(uint32_t inner_tid) {
  if (inner_tid == 0 || is_namespace_ours_) return inner_tid;
  if (const auto known = known_.find(inner_tid); known != known_.end()) return known->second;
  if (looks_ >= kLooksPerMessage) return 0;
  if (!budget_.may_scan(now_ns())) return 0;
  ++looks_;
  if (known_.size() >= kMaxThreads) known_.clear();
  scan();
  return known_.try_emplace(inner_tid, 0).first->second;
}

void ThreadIds::scan() {
  const int64_t start_ns = now_ns();
  // A folder of numbers, as /proc itself.
  const auto tids = list_pids(tasks_);
  size_t scanned = 0;
  for (const uint32_t tid : tids.ok() ? *tids : std::vector<uint32_t>()) {
    if (++scanned > kMaxScanned) break;
    const Result<std::string> status = read_status_text(tasks_ + "/" + std::to_string(tid));
    if (!status.ok() || known_.size() >= kMaxThreads) continue;
    known_.insert_or_assign(parse_inner_id(*status, tid).id, tid);
  }
  budget_.note_scan(start_ns, now_ns());
}

}  // namespace gpuperf
