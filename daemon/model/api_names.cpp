#include "daemon/model/api_names.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "bpf/records.h"

namespace gpuperf {
namespace {

#include "daemon/model/api_names.inc"

constexpr std::string_view kVariants[] = {"_ptsz", "_ptds", "_v2", "_v3"};

// cuLaunchHostFunc gives a GPU nothing to do but to wait for the host.
constexpr std::string_view kLaunches[] = {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemsetD"};
constexpr std::string_view kNoLaunches[] = {"cuLaunchHostFunc"};

struct GraphCallRow {
  std::string_view plain_name;
  gpuperf_graph_call call;
};
constexpr GraphCallRow kGraphCalls[] = {
    {"cuGraphLaunch", GPUPERF_GRAPH_LAUNCHED},
    {"cudaGraphLaunch", GPUPERF_GRAPH_LAUNCHED},
    {"cuStreamBeginCapture", GPUPERF_GRAPH_CAPTURE_BEGAN},
    {"cuStreamBeginCaptureToGraph", GPUPERF_GRAPH_CAPTURE_BEGAN},
    {"cuStreamEndCapture", GPUPERF_GRAPH_CAPTURE_ENDED},
    {"cuGraphInstantiate", GPUPERF_GRAPH_INSTANTIATED},
    {"cuGraphInstantiateWithFlags", GPUPERF_GRAPH_INSTANTIATED},
    {"cuGraphInstantiateWithParams", GPUPERF_GRAPH_INSTANTIATED},
    {"cuGraphExecUpdate", GPUPERF_GRAPH_UPDATED},
    {"cuGraphExecDestroy", GPUPERF_GRAPH_EXEC_DESTROYED},
    {"cuGraphDestroy", GPUPERF_GRAPH_DESTROYED},
};

bool begins_with_any(std::string_view text, std::span<const std::string_view> beginnings) {
  return std::ranges::any_of(beginnings,
                             [text](std::string_view start) { return text.starts_with(start); });
}

}  // namespace

std::string get_api_name(bool is_driver, uint32_t callback_id) {
  const std::span<const std::string_view> names =
      is_driver ? std::span<const std::string_view>(kDriverNames) : kRuntimeNames;
  if (callback_id < names.size() && !names[callback_id].empty()) {
    return std::string(names[callback_id]);
  }
  return (is_driver ? "driver call " : "runtime call ") + std::to_string(callback_id);
}

std::string_view get_plain_api_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kVariants);) {
    if (!name.ends_with(kVariants[i])) {
      ++i;
      continue;
    }
    name.remove_suffix(kVariants[i].size());
    i = 0;  // "_v2_ptsz"
  }
  return name;
}

bool is_launch_entry(std::string_view symbol) {
  return begins_with_any(symbol, kLaunches) && !begins_with_any(symbol, kNoLaunches);
}

bool is_kernel_launch(std::string_view symbol) {
  return symbol.starts_with("cuLaunch") && is_launch_entry(symbol);
}

uint32_t get_graph_call(std::string_view symbol) {
  const auto* const found =
      std::ranges::find(kGraphCalls, get_plain_api_name(symbol), &GraphCallRow::plain_name);
  return found == std::end(kGraphCalls) ? GPUPERF_GRAPH_NONE : found->call;
}

}  // namespace gpuperf
