#include "daemon/model/self_report.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace gpuperf {
namespace {

constexpr MemoryRow kMemoryRows[] = {
    {.part = MemoryPart::kKernelMaps,
     .name = "bpf_maps",
     .is_resident = false,
     .meaning = "kernel memory of the BPF maps, as the kernel counts it; without what it keeps per "
                "thread"},
    {.part = MemoryPart::kSessions,
     .name = "sessions",
     .meaning = "what is kept of injected processes; an estimate of its large parts"},
    {.part = MemoryPart::kRecorder,
     .name = "recorder",
     .meaning = "events of the flight recorder; exact"},
    {.part = MemoryPart::kTraceTables,
     .name = "trace_tables",
     .meaning = "names and stacks of the flight recorder's events; an estimate"},
    {.part = MemoryPart::kStackCopies,
     .name = "stack_copies",
     .meaning = "stack memory of processes that waits to be unwound; exact"},
    {.part = MemoryPart::kStore,
     .name = "sqlite",
     .meaning = "SQLite, which writes and reads the store of slow calls; exact"},
    {.part = MemoryPart::kAnswers,
     .name = "answers",
     .meaning =
         "answers that clients of HTTP and of the API have not read yet; exact for HTTP, for "
         "the API without root's"},
    {.part = MemoryPart::kOtlp,
     .name = "otlp",
     .meaning = "requests that wait for the OTLP receiver; exact"},
    {.part = MemoryPart::kHeapRest,
     .name = "other_heap",
     .meaning =
         "allocated memory that is none of the above: statistics, slow calls, symbols, gRPC; "
         "what the estimates leave, at most 2 s old"},
    {.part = MemoryPart::kFiles,
     .name = "files",
     .meaning = "mapped files (the program, its libraries) and shared memory (BPF arrays); exact"},
    {.part = MemoryPart::kRest,
     .name = "rest",
     .meaning = "resident memory that is neither allocated nor of files: free memory of the "
                "allocator, stacks of threads"},
};
static_assert(std::size(kMemoryRows) == static_cast<size_t>(MemoryPart::kCount));

}  // namespace

std::span<const MemoryRow> memory_rows() { return kMemoryRows; }

void finish(SelfReport& report) {
  std::ranges::stable_sort(report.bounds, {}, &BoundLevel::bound);
  std::map<MemoryPart, uint64_t> parts;
  for (const auto& [part, bytes] : report.memory) parts[part] += bytes;
  report.memory.assign(parts.begin(), parts.end());
  std::ranges::sort(report.steps, {}, &StepTimes::step);
}

}  // namespace gpuperf
