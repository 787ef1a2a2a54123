#include "daemon/app/self_observation.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>

#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

constexpr int64_t kCountPeriodNs = 5'000'000'000;

// Those that are open, but the one that it takes to count.
uint64_t count_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
  if (!folder) return 0;
  uint64_t count = 0;
  while (const dirent* entry = readdir(folder.get())) count += entry->d_name[0] == '.' ? 0 : 1;
  return count - std::min<uint64_t>(count, 1);
}

// Memory of the parts, all of it allocated. Estimates may claim more than there is.
uint64_t count_claimed_bytes(const SelfReport& report) {
  uint64_t claimed_bytes = 0;
  for (const auto& [part, bytes] : report.memory) {
    if (memory_rows()[static_cast<size_t>(part)].is_resident) claimed_bytes += bytes;
  }
  return claimed_bytes;
}

uint64_t get_rest(uint64_t whole, uint64_t part) { return whole - std::min(whole, part); }

}  // namespace

ResidentMemory read_resident_memory() {
  uint64_t total_pages = 0, resident_pages = 0, shared_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages >> shared_pages;
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {resident_pages * page_bytes, shared_pages * page_bytes};
}

void SelfObservation::finish(Snapshot& snapshot, const Settings& settings,
                             const DurationCounts::Totals& loop_delays, uint64_t heap_bytes) {
  SelfReport& report = snapshot.self;
  if (snapshot.taken_mono_ns >= next_count_ns_) {
    next_count_ns_ = snapshot.taken_mono_ns + kCountPeriodNs;
    descriptors_ = count_descriptors();
  }
  rlimit descriptors{};
  (void)getrlimit(RLIMIT_NOFILE, &descriptors);  // cannot fail for a resource that there is
  report.add(Bound::kDescriptors, descriptors_, descriptors.rlim_cur);
  const ResidentMemory resident = read_resident_memory();
  snapshot.resident_bytes = resident.bytes;
  report.add(Bound::kMemory, resident.bytes, settings.limits.memory_mib << 20);
  report.add(MemoryPart::kHeapRest, get_rest(heap_bytes, count_claimed_bytes(report)));
  report.add(MemoryPart::kFiles, resident.of_files_bytes);
  report.add(MemoryPart::kRest, get_rest(resident.bytes, heap_bytes + resident.of_files_bytes));
  report.steps.push_back({std::string(kLoopDelayStep), loop_delays});
  for (const auto& [thread, times] : list_work_times()) report.steps.push_back({thread, times});
  highs_.apply(report.bounds, snapshot.taken_mono_ns);
  gpuperf::finish(report);
}

}  // namespace gpuperf
