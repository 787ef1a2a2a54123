#include "daemon/state/instruction_table.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace gpuperf {
namespace {

constexpr uint64_t kEntryBytes = 160;  // with what the map adds

using Sums = std::vector<uint64_t>;  // by enum gpuperf_stall

template <typename Hot>
void set_most(const Sums& sums, Hot& hot) {
  const auto most = std::ranges::max_element(sums);
  hot.stall = static_cast<uint32_t>(most - sums.begin());
  hot.stall_samples = *most;
  hot.samples = std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

SourceLine find_source(std::string_view function, const std::pair<uint64_t, uint32_t>& instruction,
                       const CubinLinesByCrc& cubins, LineFate& fate) {
  const auto cubin = cubins.find(instruction.first);
  fate = cubin == cubins.end() ? LineFate::kWaiting : cubin->second.fate;
  if (fate != LineFate::kKnown) return {};
  const CubinLines& lines = cubin->second;
  const CubinLines::Place* const place = find_place(lines, function, instruction.second);
  if (place == nullptr || place->line == 0) {
    fate = LineFate::kNoLineThere;
    return {};
  }
  const auto get_text = [&lines](uint32_t text) {
    return text == CubinLines::kNone ? std::string() : lines.texts[text];
  };
  return {.file = get_text(place->file),
          .line = place->line,
          .function = get_text(place->function),
          .outer_file = get_text(place->outer_file),
          .outer_line = place->outer_line};
}

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

bool InstructionTable::has(uint64_t cubin_crc) const {
  const auto first = instructions_.lower_bound(Key{cubin_crc, 0});
  return first != instructions_.end() && first->first.first == cubin_crc;
}

KernelStalls InstructionTable::summarise(std::string_view function,
                                         const CubinLinesByCrc& cubins) const {
  KernelStalls summary{
      .stalls = stalls_, .instructions = instructions_.size(), .other_samples = other_samples_};
  for (const StallCount& count : stalls_) summary.samples += count.samples;
  summary.unlined_samples[static_cast<size_t>(LineFate::kNoRoom)] = other_samples_;
  summary.hottest.reserve(instructions_.size());
  std::map<SourceLine, Sums> lines;
  for (const auto& [key, samples] : instructions_) {
    HotInstruction instruction{.cubin_crc = key.first, .pc_offset_bytes = key.second};
    const Sums sums(samples.begin(), samples.end());
    set_most(sums, instruction);
    LineFate fate = LineFate::kKnown;
    instruction.source = find_source(function, key, cubins, fate);
    if (fate == LineFate::kKnown) {
      Sums& of_line = lines.try_emplace(instruction.source, GPUPERF_STALL_COUNT).first->second;
      for (size_t i = 0; i < sums.size(); ++i) of_line[i] += sums[i];
    } else {
      summary.unlined_samples[static_cast<size_t>(fate)] += instruction.samples;
    }
    summary.hottest.push_back(std::move(instruction));
  }
  for (const auto& [source, sums] : lines) {
    set_most(sums, summary.lines.emplace_back(HotLine{.source = source}));
  }
  keep_hottest(summary.hottest);
  keep_hottest(summary.lines);
  return summary;
}

}  // namespace gpuperf
