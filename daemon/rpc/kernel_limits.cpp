#include "daemon/rpc/kernel_limits.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "daemon/rpc/share.h"
#include "daemon/view/kernel_verdict.h"

namespace gpuperf {
namespace {

v1::SourceLine to_proto(const SourceLine& source) {
  v1::SourceLine message;
  message.set_file(source.file);
  message.set_line(source.line);
  message.set_function(source.function);
  message.set_outer_file(source.outer_file);
  message.set_outer_line(source.outer_line);
  return message;
}

void set_lines(const KernelStalls& stalls, v1::KernelStalls& message) {
  for (const HotLine& line : stalls.lines) {
    v1::HotLine& one = *message.add_lines();
    *one.mutable_source() = to_proto(line.source);
    one.set_samples(line.samples);
    one.set_share_ratio(get_share(line.samples, stalls.samples));
    one.set_stall(std::string(get_stall_name(line.stall).name));
    one.set_stall_samples(line.stall_samples);
  }
  const auto& unlined = stalls.unlined_samples;
  message.set_unlined_samples(std::accumulate(unlined.begin(), unlined.end(), uint64_t{0}));
  if (message.unlined_samples() == 0) return;
  const auto most = std::ranges::max_element(unlined) - unlined.begin();
  message.set_unlined_reason(std::string(describe(static_cast<LineFate>(most))));
}

v1::KernelStalls to_proto(const KernelStalls& stalls) {
  v1::KernelStalls message;
  message.set_samples(stalls.samples);
  message.set_instructions(stalls.instructions);
  message.set_other_samples(stalls.other_samples);
  std::vector<uint32_t> order;
  for (uint32_t stall = 0; stall < stalls.stalls.size(); ++stall) {
    if (stalls.stalls[stall].samples > 0) order.push_back(stall);
  }
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](uint32_t stall) { return stalls.stalls[stall].samples; });
  for (const uint32_t stall : order) {
    v1::KernelStall& one = *message.add_stalls();
    one.set_name(std::string(get_stall_name(stall).name));
    one.set_meaning(std::string(get_stall_name(stall).plain));
    one.set_samples(stalls.stalls[stall].samples);
    one.set_idle_samples(stalls.stalls[stall].idle_samples);
    one.set_share_ratio(get_share(stalls.stalls[stall].samples, stalls.samples));
  }
  for (const HotInstruction& hot : stalls.hottest) {
    v1::HotInstruction& one = *message.add_hottest();
    one.set_cubin_crc(fmt::format("{:x}", hot.cubin_crc));
    one.set_pc_offset_bytes(hot.pc_offset_bytes);
    one.set_samples(hot.samples);
    one.set_share_ratio(get_share(hot.samples, stalls.samples));
    one.set_stall(std::string(get_stall_name(hot.stall).name));
    one.set_stall_samples(hot.stall_samples);
    if (hot.source.line != 0) *one.mutable_source() = to_proto(hot.source);
  }
  set_lines(stalls, message);
  return message;
}

v1::KernelLaunch to_proto(const LaunchShape& shape, const SmLimits& sm) {
  v1::KernelLaunch message;
  for (const uint32_t blocks : shape.grid) message.add_grid(blocks);
  for (const uint32_t threads : shape.block) message.add_block(threads);
  message.set_registers_per_thread(shape.registers_per_thread);
  message.set_shared_memory_bytes(shape.shared_memory_bytes);
  message.set_local_memory_bytes(shape.local_memory_bytes);
  if (const std::optional<Occupancy> occupancy = get_occupancy(shape, sm)) {
    message.set_sm_count(sm.count);
    message.set_blocks_per_sm(occupancy->blocks_per_sm);
    message.set_occupancy_ratio(occupancy->ratio);
    message.set_occupancy_limit(std::string(occupancy->limit));
    message.set_waves(occupancy->waves);
  }
  return message;
}

}  // namespace

void set_limits(const LaunchShape& shape, const SmLimits& sm, const KernelStalls* stalls,
                v1::KernelStats& stats) {
  if (stalls != nullptr) *stats.mutable_stalls() = to_proto(*stalls);
  if (shape.id != 0) *stats.mutable_launch() = to_proto(shape, sm);
  for (const KernelVerdict& verdict : judge_kernel(shape, sm, stalls)) {
    v1::KernelVerdict& one = *stats.add_verdicts();
    one.set_name(std::string(verdict.name));
    one.set_reason(verdict.reason);
    one.set_advice(std::string(verdict.advice));
  }
}

}  // namespace gpuperf
