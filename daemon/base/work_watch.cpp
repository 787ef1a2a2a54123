#include "daemon/base/work_watch.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "daemon/base/mutex.h"

namespace gpuperf {
namespace {

using std::chrono::steady_clock;

// What one thread is at.
struct Place {
  std::atomic<const char*> thread = nullptr;  // null = nothing
  std::atomic<steady_clock::time_point> begin;
  std::atomic<std::chrono::seconds> limit;
  // Of the owner only: where the times of `counted` are added up.
  const char* counted = nullptr;
  DurationCounts* times = nullptr;
};

struct Places {
  Mutex mutex;
  std::vector<const Place*> all ABSL_GUARDED_BY(mutex);
  std::map<std::string, DurationCounts> times ABSL_GUARDED_BY(mutex);  // by thread; none leaves
};

// Of the process, as its log is. Never destroyed: threads that are left behind at exit use it.
Places& get_places() {
  static Places& places = *new Places;
  return places;
}

// The calling thread's, listed from its first piece of work to its end.
class ListedPlace {
 public:
  ListedPlace() {
    const MutexLock lock(places_.mutex);
    places_.all.push_back(&place);
  }
  ~ListedPlace() {
    const MutexLock lock(places_.mutex);
    std::erase(places_.all, &place);
  }
  ListedPlace(const ListedPlace&) = delete;
  ListedPlace& operator=(const ListedPlace&) = delete;

  Place place;

 private:
  Places& places_ = get_places();
};

Place& get_own_place() {
  thread_local ListedPlace own;
  return own.place;
}

DurationCounts* get_times(const char* thread) {
  Places& places = get_places();
  const MutexLock lock(places.mutex);
  return &places.times[thread];
}

}  // namespace

Work::Work(const char* thread, std::chrono::seconds limit)
    : is_outer_(get_own_place().thread == nullptr) {
  if (!is_outer_) return;
  Place& own = get_own_place();
  own.begin = steady_clock::now();
  own.limit = limit;
  own.thread = thread;
  if (own.counted == thread) return;
  own.counted = thread;
  own.times = get_times(thread);
}

Work::~Work() {
  if (!is_outer_) return;
  Place& own = get_own_place();
  own.times->add(steady_clock::now() - own.begin.load());
  own.thread = nullptr;
}

std::vector<WorkAtHand> list_work() {
  std::vector<WorkAtHand> work;
  {
    Places& places = get_places();
    const auto now = steady_clock::now();
    const MutexLock lock(places.mutex);
    for (const Place* place : places.all) {
      const char* const thread = place->thread;
      if (thread != nullptr) work.push_back({thread, now - place->begin.load(), place->limit});
    }
  }
  std::ranges::sort(work, std::ranges::greater(), &WorkAtHand::age);
  return work;
}

std::map<std::string, DurationCounts::Totals> list_work_times() {
  std::map<std::string, DurationCounts::Totals> totals;
  Places& places = get_places();
  const MutexLock lock(places.mutex);
  for (const auto& [thread, times] : places.times) totals[thread] = times.get();
  return totals;
}

std::vector<WorkAtHand> list_late_work() {
  std::vector<WorkAtHand> late = list_work();
  std::erase_if(late, [](const WorkAtHand& work) { return work.age <= work.limit; });
  return late;
}

}  // namespace gpuperf
