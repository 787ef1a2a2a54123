#include "daemon/base/work_watch.h"

#include <algorithm>
#include <functional>

#include "daemon/base/mutex.h"

namespace gpuperf {

struct WorkList {
  Mutex mutex;
  std::list<Work::Entry> entries ABSL_GUARDED_BY(mutex);

  // Of the process, as its log is. Never destroyed: threads that are left behind at exit use it.
  static WorkList& get() {
    static WorkList& all = *new WorkList;
    return all;
  }
  std::list<Work::Entry>::iterator add(const Work::Entry& entry) {
    const MutexLock lock(mutex);
    return entries.insert(entries.end(), entry);
  }
  std::vector<WorkAtHand> list() {
    std::vector<WorkAtHand> all;
    const auto now = std::chrono::steady_clock::now();
    const MutexLock lock(mutex);
    for (const auto& [thread, begin, limit] : entries) all.push_back({thread, now - begin, limit});
    return all;
  }
};

Work::Work(const char* thread, std::chrono::seconds limit)
    : place_(WorkList::get().add(
          {.thread = thread, .begin = std::chrono::steady_clock::now(), .limit = limit})) {}

Work::~Work() {
  WorkList& all = WorkList::get();
  const MutexLock lock(all.mutex);
  all.entries.erase(place_);
}

std::vector<WorkAtHand> list_work() {
  std::vector<WorkAtHand> all = WorkList::get().list();
  std::ranges::sort(all, std::ranges::greater(), &WorkAtHand::age);
  return all;
}

std::vector<WorkAtHand> list_late_work() {
  std::vector<WorkAtHand> late = list_work();
  std::erase_if(late, [](const WorkAtHand& work) { return work.age <= work.limit; });
  return late;
}

}  // namespace gpuperf
