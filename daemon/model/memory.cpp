#include "daemon/model/memory.h"

#include <algorithm>

namespace gpuperf {
namespace {

constexpr std::string_view kMemoryKindNames[kMemoryKindCount] = {
    "device", "async", "virtual", "array", "managed", "pinned", "registered", "imported"};

constexpr std::string_view kGapTexts[kMemoryGaps] = {
    "the process ran before its calls were seen: what it allocated before is not counted",
    "it released memory that was not seen allocated",
    "memory was given out again although its release was not seen",
    "it allocated more pieces than gpuperfd keeps: the rest is not counted",
    "reports of calls were lost (see drops in gpuperfctl status)",
    "arguments or results of some calls could not be read",
    "the overhead budget suspended probes of allocation functions",
    "a CUDA context ended, and its memory cannot be told from that of other contexts",
};

}  // namespace

std::string_view get_memory_name(MemoryKind kind) {
  return kMemoryKindNames[static_cast<size_t>(kind)];
}

void add_allocation(MemoryTotals& totals, uint64_t bytes) {
  totals.live_bytes += bytes;
  ++totals.live_count;
  totals.peak_bytes = std::max(totals.peak_bytes, totals.live_bytes);
  totals.allocated_bytes += bytes;
  ++totals.allocations;
}

void add_release(MemoryTotals& totals, uint64_t bytes) {
  totals.live_bytes -= bytes;
  --totals.live_count;
  totals.released_bytes += bytes;
  ++totals.releases;
}

void merge_totals(MemoryTotals& totals, const MemoryTotals& other) {
  totals.live_bytes += other.live_bytes;
  totals.live_count += other.live_count;
  totals.peak_bytes += other.peak_bytes;
  totals.allocated_bytes += other.allocated_bytes;
  totals.allocations += other.allocations;
  totals.released_bytes += other.released_bytes;
  totals.releases += other.releases;
}

std::vector<std::string_view> describe_memory_gaps(uint32_t gaps) {
  std::vector<std::string_view> texts;
  for (size_t i = 0; i < kMemoryGaps; ++i) {
    if ((gaps >> i & 1) != 0) texts.push_back(kGapTexts[i]);
  }
  return texts;
}

uint64_t get_on_gpu_bytes(const MemoryProcess& process) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < kMemoryKindCount; ++i) {
    if (is_on_gpu(static_cast<MemoryKind>(i))) bytes += process.kinds[i].live_bytes;
  }
  return bytes;
}

uint64_t get_used_bytes(const MemoryProcess& process) {
  uint64_t bytes = 0;
  for (const MemoryOnGpu& gpu : process.gpus) bytes += gpu.used_bytes;
  return bytes;
}

double get_leak_bytes_per_second(const MemoryProcess& process) {
  double bytes_per_second = 0;
  for (const MemorySite& site : process.sites) {
    if (!is_leak(site)) continue;
    bytes_per_second += static_cast<double>(site.growth->grown_bytes) * 1e9 /
                        static_cast<double>(site.growth->window_ns);
  }
  return bytes_per_second;
}

}  // namespace gpuperf
