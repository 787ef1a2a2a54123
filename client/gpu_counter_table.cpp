#include "client/gpu_counter_table.h"

#include <fmt/format.h>

#include <utility>

namespace gpuperf::client {
namespace {

std::vector<Cell> make_row(std::string gpu, std::string instance, const v1::GpuCounters& counters) {
  const auto ratio = [](bool is_known, double value) {
    return Cell{is_known ? format_ratio(value) : ""};
  };
  const auto rate = [](bool is_known, uint64_t value) {
    return Cell{is_known ? format_bytes(value) + "/s" : ""};
  };
  const v1::GpuCounters& c = counters;
  return {{std::move(gpu)},
          {std::move(instance)},
          ratio(c.has_graphics_engine_active_ratio(), c.graphics_engine_active_ratio()),
          ratio(c.has_sm_active_ratio(), c.sm_active_ratio()),
          ratio(c.has_sm_occupancy_ratio(), c.sm_occupancy_ratio()),
          ratio(c.has_tensor_active_ratio(), c.tensor_active_ratio()),
          ratio(c.has_fp64_active_ratio(), c.fp64_active_ratio()),
          ratio(c.has_fp32_active_ratio(), c.fp32_active_ratio()),
          ratio(c.has_fp16_active_ratio(), c.fp16_active_ratio()),
          ratio(c.has_integer_active_ratio(), c.integer_active_ratio()),
          ratio(c.has_dram_active_ratio(), c.dram_active_ratio()),
          rate(c.has_pcie_transmit_bytes_per_second(), c.pcie_transmit_bytes_per_second()),
          rate(c.has_pcie_receive_bytes_per_second(), c.pcie_receive_bytes_per_second()),
          rate(c.has_nvlink_transmit_bytes_per_second(), c.nvlink_transmit_bytes_per_second()),
          rate(c.has_nvlink_receive_bytes_per_second(), c.nvlink_receive_bytes_per_second())};
}

}  // namespace

std::map<uint32_t, const v1::GpuCounters*> list_instance_counters(const v1::Gpu& gpu) {
  std::map<uint32_t, const v1::GpuCounters*> instances;
  for (const v1::GpuMigInstance& instance : gpu.mig_instances()) {
    if (instance.has_counters()) instances[instance.gpu_instance()] = &instance.counters();
  }
  return instances;
}

std::string render_gpu_counter_table(const std::vector<v1::Gpu>& gpus, const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"GPU", kRight},
               {.title = "INSTANCE", .align = kRight, .optional = true},
               {"ENGINE", kRight},
               {"SM", kRight},
               {"OCCUPANCY", kRight},
               {"TENSOR", kRight},
               {"FP64", kRight},
               {"FP32", kRight},
               {"FP16", kRight},
               {"INTEGER", kRight},
               {"DRAM", kRight},
               {"PCIE TX", kRight},
               {"PCIE RX", kRight},
               {.title = "NVLINK TX", .align = kRight, .optional = true},
               {.title = "NVLINK RX", .align = kRight, .optional = true}});
  bool has_rows = false;
  std::string reasons;
  const auto add = [&](const v1::Gpu& gpu, const std::string& instance,
                       const v1::GpuCounters& counters) {
    if (counters.window_ns() > 0) {
      has_rows = true;
      return table.add_row(make_row(std::to_string(gpu.index()), instance, counters));
    }
    if (counters.reason().empty()) return;
    reasons += fmt::format("GPU {}{}: no hardware counters: {}\n", gpu.index(),
                           instance.empty() ? "" : ", instance " + instance,
                           make_printable(counters.reason()));
  };
  for (const v1::Gpu& gpu : gpus) {
    const auto instances = list_instance_counters(gpu);
    if (instances.empty()) add(gpu, "", gpu.counters());
    for (const auto& [id, counters] : instances) add(gpu, std::to_string(id), *counters);
  }
  std::string text;
  if (has_rows) text = "\n" + table.take_text(style);
  if (!reasons.empty()) text += "\n" + paint(reasons, Tone::kDim, style);
  return text;
}

}  // namespace gpuperf::client
