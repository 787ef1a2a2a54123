#include "daemon/state/instruction_table.h"

#include <algorithm>
#include <limits>

namespace gpuperf {
namespace {

constexpr uint64_t kEntryBytes = 160;  // with what the map adds

}  // namespace

void InstructionTable::add(const StallRecord& record) {
  const Key key{record.cubin_crc, record.pc_offset_bytes};
  auto found = instructions_.find(key);
  if (found == instructions_.end() && instructions_.size() < kMaxInstructions &&
      account_.take(kEntryBytes)) {
    found = instructions_.emplace(key, Samples()).first;
  }
  for (const StallRecord::Count& count : record.counts) {
    if (count.stall >= GPUPERF_STALL_COUNT) continue;
    stalls_[count.stall].samples += count.samples;
    stalls_[count.stall].idle_samples += count.idle_samples;
    if (found == instructions_.end()) {
      other_samples_ += count.samples;
    } else {
      uint32_t& sum = found->second[count.stall];
      sum += std::min(count.samples, std::numeric_limits<uint32_t>::max() - sum);
    }
  }
}

KernelStalls InstructionTable::summarise() const {
  KernelStalls summary{
      .stalls = stalls_, .instructions = instructions_.size(), .other_samples = other_samples_};
  for (const StallCount& count : stalls_) summary.samples += count.samples;
  summary.hottest.reserve(instructions_.size());
  for (const auto& [key, samples] : instructions_) {
    const auto most = std::ranges::max_element(samples);
    HotInstruction instruction{.cubin_crc = key.first,
                               .pc_offset_bytes = key.second,
                               .stall = static_cast<uint32_t>(most - samples.begin()),
                               .stall_samples = *most};
    for (const uint32_t count : samples) instruction.samples += count;
    summary.hottest.push_back(instruction);
  }
  keep_hottest(summary.hottest);
  return summary;
}

}  // namespace gpuperf
